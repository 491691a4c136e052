//! A process that measures its part of a case beside others, as its parent tells it.

use crate::crew::{Answer, Line, Part};
use crate::executor::native::Native;
use crate::memory::places::Places;
use crate::no_visit::NoVisit;
use crate::os::processes;
use membound_core::memory::Obtained;
use membound_core::record::{Outcome, Volume};

/// Does a worker's part, where this process is one: from its parent's first word to its last. Whoever can't be told anything
/// has gone: then there is nothing to do.
pub fn serve() -> bool {
    let Some(talk) = processes::talk_to_parent() else { return false };
    let Ok(mut line) = talk.and_then(Line::over) else { return true };
    if let Ok(Some(part)) = line.hear::<Part>() {
        let answer = match work(&part, &mut line) {
            Ok((volume, obtained)) => Answer::Done { volume, obtained: Box::new(obtained) },
            Err(why) => Answer::Refused(Outcome::from(why)),
        };
        let _ = line.say(&answer);
    }
    true
}

fn work(part: &Part, line: &mut Line) -> Result<(Volume, Obtained), NoVisit> {
    let cases = std::slice::from_ref(&part.case);
    Native::new(cases, Places::default(), part.verify)?.work(part, line)
}
