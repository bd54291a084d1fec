//! The password of `admin`: the initial one, and whether other machines may connect without one.

use datum::Object;
use io::Random;
use protocol::scram::{DEFAULT_ITERATIONS, PasswordRecord, SALT_BYTES};

use crate::config::{Config, InitialPassword};

/// The characters of a generated password, without easily confused ones.
const LETTERS: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz123456789";

const LETTER_COUNT: usize = 24;

/// The record of `password` for the catalog, and whether the password is not empty. An empty one takes a single
/// iteration, so that connecting costs nothing.
pub fn record(password: &str, iterations: Option<u32>, random: &dyn Random) -> (Object, bool) {
    let mut salt = [0; SALT_BYTES];
    random.fill(&mut salt);
    let default = if password.is_empty() { 1 } else { DEFAULT_ITERATIONS };
    let record = PasswordRecord::new(password, salt, iterations.unwrap_or(default));
    (record.to_object(), !record.is_empty)
}

/// The configured initial password. A generated one is printed, not logged.
pub fn initial(wanted: Option<&InitialPassword>, random: &dyn Random) -> String {
    match wanted {
        None => String::new(),
        Some(InitialPassword::Given(password)) => password.clone(),
        Some(InitialPassword::Auto) => {
            let password = generate(random);
            println!("Generated random admin password: {password}");
            password
        }
    }
}

fn generate(random: &dyn Random) -> String {
    let mut bytes = [0; LETTER_COUNT];
    random.fill(&mut bytes);
    bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect()
}

/// Other machines could connect without a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "other machines could connect ({service} would listen on {address}) while the user admin has no password; \
     give one with --initial-password, or add --insecure if everyone may do everything"
)]
pub struct MissingPassword {
    service: &'static str,
    address: std::net::IpAddr,
}

/// Fails when `admin` has no password and a port is open to other machines.
pub fn check_exposure(config: &Config, has_password: bool) -> Result<(), MissingPassword> {
    if has_password || config.insecure {
        return Ok(());
    }
    let services = [
        ("drivers", Some(&config.driver)),
        ("cluster", Some(&config.cluster)),
        ("HTTP", config.http.as_ref()),
    ];
    for (service, bound) in services {
        let open = bound.filter(|bound| !bound.is_local());
        let open = open
            .and_then(|bound| bound.addresses.iter().find(|address| !address.to_canonical().is_loopback()));
        if let Some(address) = open {
            return Err(MissingPassword { service, address: *address });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;
    use ::io::real::RealRandom;

    fn config(flags: &[(&str, Option<&str>)]) -> Config {
        let settings = flags.iter().map(|(name, value)| Setting::flag(*name, value.map(str::to_owned)));
        Config::from_settings(settings.collect()).unwrap()
    }

    #[test]
    fn an_open_port_needs_a_password_or_explicit_permission() {
        assert_eq!(check_exposure(&config(&[]), false), Ok(()));
        let open = config(&[("bind", Some("all"))]);
        let refusal = check_exposure(&open, false).unwrap_err().to_string();
        assert!(refusal.contains("drivers would listen on 0.0.0.0"), "{refusal}");
        assert_eq!(check_exposure(&open, true), Ok(()));
        assert_eq!(check_exposure(&config(&[("bind", Some("all")), ("insecure", None)]), false), Ok(()));
        assert!(check_exposure(&config(&[("bind-http", Some("10.1.2.3"))]), false).is_err());
        let no_http = config(&[("bind-http", Some("10.1.2.3")), ("no-http-admin", None)]);
        assert_eq!(check_exposure(&no_http, false), Ok(()));
    }

    #[test]
    fn records_know_their_password() {
        let (object, is_set) = record("secret", Some(7), &RealRandom);
        let kept = PasswordRecord::from_object(&object).unwrap();
        assert!(is_set && kept.matches("secret") && kept.iterations == 7);
        let (object, is_set) = record("", None, &RealRandom);
        assert!(!is_set && PasswordRecord::from_object(&object).unwrap().iterations == 1);
    }

    #[test]
    fn made_up_passwords_differ() {
        let (one, other) = (generate(&RealRandom), generate(&RealRandom));
        assert_ne!(one, other);
        assert_eq!(one.len(), LETTER_COUNT);
    }
}
