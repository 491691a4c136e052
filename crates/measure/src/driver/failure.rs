//! What a driver answered instead of success. Each interface has its own codes, and says which outcome each makes.

use crate::no_visit::NoVisit;

/// Success, with every interface.
const SUCCESS: i32 = 0;

/// What an interface's codes are called and mean.
#[derive(Debug)]
pub(crate) struct Codes {
    /// Names of codes that users meet.
    pub names: &'static [(i32, &'static str)],
    /// The outcome of a failure.
    pub outcome: fn(&Failure) -> NoVisit,
}

/// A call that failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure {
    /// The function, by the name of its documentation.
    pub call: &'static str,
    /// Its answer.
    pub code: i32,
    codes: &'static Codes,
}

impl Codes {
    /// This code from that call.
    pub fn failure(&'static self, call: &'static str, code: i32) -> Failure {
        Failure { call, code, codes: self }
    }

    /// Whether a call succeeded.
    pub fn done(&'static self, call: &'static str, code: i32) -> Result<(), Failure> {
        if code == SUCCESS { Ok(()) } else { Err(self.failure(call, code)) }
    }
}

impl std::fmt::Display for Failure {
    /// `CUDA_ERROR_OUT_OF_MEMORY (2) from cuMemAlloc`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.codes.names;
        let name = names.iter().find(|(code, _)| *code == self.code).map_or("an unknown error", |(_, name)| name);
        write!(f, "{name} ({}) from {}", self.code, self.call)
    }
}

impl From<Failure> for NoVisit {
    fn from(failure: Failure) -> Self {
        (failure.codes.outcome)(&failure)
    }
}

#[cfg(test)]
pub(crate) mod told {
    use super::*;
    use membound_core::record::Outcome;

    /// Whether a failure's outcome is so, and its reason has this part.
    pub fn is(failure: Failure, outcome: &str, part: &str) {
        let (found, reason) = match Outcome::from(NoVisit::from(failure)) {
            Outcome::Unavailable { reason } => ("unavailable", reason),
            Outcome::Crashed { reason } => ("crashed", reason),
            other => panic!("{other:?}"),
        };
        assert!(found == outcome && reason.contains(part), "{found}: {reason}");
    }
}
