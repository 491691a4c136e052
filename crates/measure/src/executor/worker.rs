//! A process that does something for its parent: measures its part of a case beside others, or lives with a device's driver.

use crate::crew::{Answer, Errand, Line, Part};
#[cfg(any(feature = "opencl", feature = "cuda", feature = "vulkan"))]
use crate::executor::drivers;
use crate::executor::native::Native;
use crate::no_visit::NoVisit;
use crate::os::memory::map_large_blocks;
use crate::os::processes;
use membound_core::memory::Obtained;
use membound_core::record::{Outcome, Volume};

/// Does a worker's errand, where this process is one: from its parent's first word to its last. Whoever can't be told anything
/// has gone: then there is nothing to do. Every process of the program comes by here first, so this is where it says how it wants
/// its memory, before any was freed.
pub fn serve() -> bool {
    map_large_blocks();
    let Some(talk) = processes::talk_to_parent() else { return false };
    let Ok(mut line) = talk.and_then(Line::over) else { return true };
    match line.hear::<Errand<Part>>() {
        Ok(Some(Errand::Part(part))) => {
            let answer = match work(&part, &mut line) {
                Ok((volume, obtained)) => Answer::Done { volume, obtained: Box::new(obtained) },
                Err(why) => Answer::Refused(Outcome::from(why)),
            };
            let _ = line.say(&answer);
        }
        Ok(Some(Errand::Devices(api))) => {
            let _ = line.say(&drivers::list(api));
        }
        Ok(Some(Errand::Device(name))) => drivers::serve(name, &mut line),
        Ok(None) | Err(_) => {}
    }
    true
}

fn work(part: &Part, line: &mut Line) -> Result<(Volume, Obtained), NoVisit> {
    let cases = std::slice::from_ref(&part.case);
    Native::new(cases, part.places.clone().into(), part.verify)?.work(part, line)
}

/// Stands in for drivers where all were left out.
#[cfg(not(any(feature = "opencl", feature = "cuda", feature = "vulkan")))]
mod drivers {
    use crate::crew::Line;
    use membound_core::machine::devices::{Api, DeviceName, Devices};

    pub fn list(api: Api) -> Devices {
        let why = format!("this build leaves {api} out; build with the feature {api}");
        Devices { absent: vec![(api, why)], ..Devices::default() }
    }

    pub fn serve(_name: DeviceName, _line: &mut Line) {}
}
