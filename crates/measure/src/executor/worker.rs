//! A process that does something for its parent: measures its part of a case beside others, or lives with a device's driver.

use crate::crew::{Answer, Errand, Line, Part};
use crate::executor::native::Native;
use crate::memory::places::Places;
use crate::no_visit::NoVisit;
use crate::os::processes;
use membound_core::memory::Obtained;
use membound_core::record::{Outcome, Volume};

/// Does a worker's errand, where this process is one: from its parent's first word to its last. Whoever can't be told anything
/// has gone: then there is nothing to do.
pub fn serve() -> bool {
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
        Ok(Some(Errand::Devices)) => {
            let _ = line.say(&drivers::list());
        }
        Ok(Some(Errand::Device(name))) => drivers::serve(name, &mut line),
        Ok(None) | Err(_) => {}
    }
    true
}

fn work(part: &Part, line: &mut Line) -> Result<(Volume, Obtained), NoVisit> {
    let cases = std::slice::from_ref(&part.case);
    Native::new(cases, Places::default(), part.verify)?.work(part, line)
}

/// Devices, in a process that may load their drivers.
#[cfg(feature = "opencl")]
mod drivers {
    use crate::crew::Line;
    use crate::executor::device::{Visit, work};
    use crate::experiments::device::{Bench, devices};
    use crate::no_visit::NoVisit;
    use crate::schedule::Quota;
    use membound_core::machine::devices::{DeviceName, Devices};
    use membound_core::record::Outcome;

    pub fn list() -> Devices {
        devices()
    }

    /// Visits as it is asked to, until nobody asks any more.
    pub fn serve(name: DeviceName, line: &mut Line) {
        let mut bench = Bench::open(name);
        while let Ok(Some(visit)) = line.hear::<Visit>() {
            let outcome = bench.as_mut().map_err(|why| why.clone()).and_then(|bench| visited(bench, &visit));
            let outcome = outcome.unwrap_or_else(Outcome::from);
            if line.say(&outcome).is_err() {
                return;
            }
        }
    }

    fn visited(
        bench: &mut Bench,
        Visit { case, least_samples, most_samples, time }: &Visit,
    ) -> Result<Outcome, NoVisit> {
        let Some(work) = work(case) else { return Err(NoVisit::impossible("this is no work on a device")) };
        // Whoever wants to stop ends this process.
        let quota =
            Quota { least_samples: *least_samples, most_samples: *most_samples, time: *time, interrupted: &|| false };
        Ok(Outcome::Measured(Box::new(bench.visit(case, work, &quota)?)))
    }
}

/// Stands in for drivers where they were left out.
#[cfg(not(feature = "opencl"))]
mod drivers {
    use crate::crew::Line;
    use membound_core::machine::devices::{Api, DeviceName, Devices};

    pub fn list() -> Devices {
        let why = "this build has no OpenCL; build with the feature opencl".to_string();
        Devices { absent: vec![(Api::OpenCl, why)], ..Devices::default() }
    }

    pub fn serve(_name: DeviceName, _line: &mut Line) {}
}
