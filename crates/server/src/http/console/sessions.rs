//! The sessions of browsers: their users, and when they end.
//!
//! A session ends after a time without requests, at an age, when it is ended, and when its user has another password or is
//! gone. Times are passed in.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use protocol::scram::PasswordRecord;

/// A session without requests ends after this time.
const IDLE_MAX: Duration = Duration::from_secs(12 * 3600);

/// A session ends at this age.
const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Sessions of a server. A further one ends the one that was used least recently.
const SESSIONS_MAX: usize = 1_000;

/// The random number of a session, which its browser sends back.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SessionKey(pub(super) [u8; 32]);

impl SessionKey {
    /// The digits of a cookie.
    pub(super) fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Inverse of [`SessionKey::to_hex`].
    pub(super) fn from_hex(text: &str) -> Option<SessionKey> {
        let mut key = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (index, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(SessionKey(key))
    }
}

struct SessionState {
    user: String,
    /// As it was at the login: the session ends once the user's record is another one.
    proved: PasswordRecord,
    began: Instant,
    used: Instant,
}

impl SessionState {
    fn has_ended(&self, now: Instant) -> bool {
        now.duration_since(self.used) > IDLE_MAX || now.duration_since(self.began) > AGE_MAX
    }
}

/// At most [`SESSIONS_MAX`] sessions: a further one ends the one that was used longest ago.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<SessionKey, SessionState, RandomState>>);

impl Sessions {
    /// Begins a session of `user`. `proved` is the record of the password that the login proved; `key` must be random.
    pub(super) fn begin(&self, key: SessionKey, user: String, proved: PasswordRecord, now: Instant) {
        let mut sessions = self.0.lock();
        sessions.retain(|_, session| !session.has_ended(now));
        if sessions.len() >= SESSIONS_MAX
            && let Some(oldest) = sessions.iter().min_by_key(|(_, session)| session.used).map(|(key, _)| *key)
        {
            sessions.remove(&oldest);
        }
        sessions.insert(key, SessionState { user, proved, began: now, used: now });
    }

    /// The user of a session, which is used by this. `record` looks up the present record of a user; the session ends if it is
    /// another one.
    pub(super) fn user(
        &self,
        key: SessionKey,
        record: impl FnOnce(&str) -> Option<PasswordRecord>,
        now: Instant,
    ) -> Option<String> {
        let mut sessions = self.0.lock();
        let session = sessions.get_mut(&key)?;
        if session.has_ended(now) || record(&session.user).is_none_or(|record| record != session.proved) {
            sessions.remove(&key);
            return None;
        }
        session.used = now;
        Some(session.user.clone())
    }

    /// As a logout. A session that has ended before is no error.
    pub(super) fn end(&self, key: SessionKey) {
        self.0.lock().remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(password: &str) -> PasswordRecord {
        PasswordRecord::new(password, [1; 16], 1)
    }

    fn key(number: usize) -> SessionKey {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_le_bytes());
        SessionKey(key)
    }

    fn user(sessions: &Sessions, number: usize, password: &str, now: Instant) -> Option<String> {
        sessions.user(key(number), |_| Some(record(password)), now)
    }

    #[test]
    fn a_session_ends_when_it_is_idle_old_or_without_its_password() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let after = |hours: u64| start + Duration::from_secs(hours * 3600);
        let begin = |number| sessions.begin(key(number), "bob".into(), record("a"), start);
        begin(1);
        assert_eq!(user(&sessions, 1, "a", after(11)).as_deref(), Some("bob"));
        assert_eq!(user(&sessions, 1, "a", after(22)).as_deref(), Some("bob"), "it was used");
        assert_eq!(user(&sessions, 1, "a", after(35)), None);
        begin(2);
        (1..16).for_each(|step| assert!(user(&sessions, 2, "a", after(step * 11)).is_some()));
        assert_eq!(user(&sessions, 2, "a", after(169)), None, "older than a week");
        begin(3);
        assert_eq!(user(&sessions, 3, "b", start), None, "another password");
        assert_eq!(user(&sessions, 3, "a", start), None, "it stays ended");
        begin(4);
        assert_eq!(sessions.user(key(4), |_| None, start), None, "the user is gone");
        begin(5);
        sessions.end(key(5));
        assert_eq!(user(&sessions, 5, "a", start), None);
    }

    #[test]
    fn the_least_used_session_makes_room() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let at = |second: usize| start + Duration::from_secs(second as u64);
        (0..SESSIONS_MAX).for_each(|n| sessions.begin(key(n), "bob".into(), record("a"), at(n)));
        assert!(user(&sessions, 0, "a", at(SESSIONS_MAX)).is_some());
        sessions.begin(key(SESSIONS_MAX), "bob".into(), record("a"), at(SESSIONS_MAX));
        assert!(user(&sessions, 0, "a", at(SESSIONS_MAX)).is_some());
        assert!(user(&sessions, 1, "a", at(SESSIONS_MAX)).is_none());
    }

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let key = SessionKey([0xa7; 32]);
        assert!(SessionKey::from_hex(&key.to_hex()) == Some(key));
        for text in ["", "zz", &"é".repeat(32), &"+f".repeat(32)[..63]] {
            assert!(SessionKey::from_hex(text).is_none());
        }
    }
}
