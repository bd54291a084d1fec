//! The least processor time that a run of `bench hop` must use for a meaningful figure.

use anyhow::ensure;

/// With less processor time of both servers there is no figure: it is counted in hundredths of a second.
const CPU_SECONDS_MIN: f64 = 0.2;

/// Fails if runs of `seconds` are too short on a machine with this many `cores`, even at full load.
pub(super) fn check_possible(seconds: f64, cores: usize) -> anyhow::Result<()> {
    let cores = cores.max(1) as f64;
    ensure!(
        seconds * cores >= CPU_SECONDS_MIN,
        "--seconds {seconds}: the {cores} cores of this machine have {:.2} s of processor time in it, and each run has to \
         take {CPU_SECONDS_MIN} s, as it is counted in hundredths: give at least --seconds {:.2}, better 2 or more",
        seconds * cores,
        // Rounded up, so that the advised value is accepted.
        (CPU_SECONDS_MIN / cores * 100.0).ceil() / 100.0
    );
    Ok(())
}

/// Fails if a run of `seconds` will use too little, judging by a trial of `kind` that used `used` in `trial_seconds`.
pub(super) fn check_expected(kind: &str, used: f64, trial_seconds: f64, seconds: f64) -> anyhow::Result<()> {
    let per_second = used / trial_seconds.max(1e-9);
    let expected = per_second * seconds;
    let advice = match per_second > 0.0 {
        true => format!("give --seconds {:.0} or more", (2.0 * CPU_SECONDS_MIN / per_second).ceil()),
        false => "give more --seconds".to_owned(),
    };
    ensure!(
        expected >= CPU_SECONDS_MIN,
        "{kind}: --seconds {seconds} would be too short to tell: the servers would use about {expected:.2} s of processor \
         time, as in a trial before, and each run has to take {CPU_SECONDS_MIN} s, as it is counted in hundredths: {advice}"
    );
    Ok(())
}

/// A message if one of these runs used too little.
pub(super) fn too_little(used: impl Iterator<Item = f64> + Clone) -> Option<String> {
    let runs = used.clone().count();
    let short = used.clone().filter(|used| *used < CPU_SECONDS_MIN).count();
    let least = used.reduce(f64::min).filter(|_| short > 0)?;
    Some(format!(
        "in {short} of {runs} runs the servers used too little processor time to tell, {least:.2} s or more where it takes \
         {CPU_SECONDS_MIN} s, as it is counted in hundredths: give more --seconds"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_short_runs_are_refused_with_a_sufficient_duration() {
        assert!(check_possible(0.1, 2).is_ok() && check_possible(0.04, 8).is_ok());
        let why = check_possible(0.05, 3).expect_err("it is too short").to_string();
        assert!(
            why.contains("--seconds 0.05: the 3 cores") && why.contains("at least --seconds 0.07"),
            "{why}"
        );
        assert!(check_possible(0.07, 3).is_ok());
    }

    #[test]
    fn a_trial_predicts_whether_runs_are_long_enough() {
        assert!(check_expected("GET-LOCAL", 0.4, 2.0, 1.0).is_ok());
        let why = check_expected("UPDATE-ONE", 0.11, 1.0, 1.0).expect_err("it will be too short").to_string();
        assert!(why.starts_with("UPDATE-ONE: --seconds 1 would be too short"), "{why}");
        assert!(why.contains("0.11 s") && why.ends_with("give --seconds 4 or more"), "{why}");
        assert!(check_expected("UPDATE-ONE", 0.44, 4.0, 4.0).is_ok());
        let why = check_expected("UPDATE-ONE", 0.0, 1.0, 1.0).expect_err("nothing was used").to_string();
        assert!(why.ends_with("give more --seconds"), "{why}");
    }

    #[test]
    fn runs_that_took_too_little_are_counted() {
        assert_eq!(too_little([0.2, 0.5].into_iter()), None);
        assert_eq!(too_little([].into_iter()), None);
        let said = too_little([0.5, 0.11, 0.15, 0.2].into_iter()).expect("two were too short");
        assert!(said.starts_with("in 2 of 4 runs") && said.contains("0.11 s or more"), "{said}");
    }
}
