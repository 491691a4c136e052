//! Devices: their drivers live in a process of their own, which this one talks to.
//!
//! A driver may crash the process that loads it, never return from its first call, or leave threads behind that would run beside
//! every later sample. So this process loads none: it starts itself once more, as `crew` does, asks that process for samples, and
//! ends it when it does not answer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, BufRead, BufReader};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::crew::{Errand, Line, WorkerProcess};
use crate::no_visit::NoVisit;
use crate::schedule::Quota;
use membound_core::case::{Case, Work};
use membound_core::machine::devices::{Api, DeviceName, Devices, pci_memory};
use membound_core::record::Outcome;
use membound_core::units::LINE;
use membound_core::work::device::{Action, Buffer};
use serde::Deserialize;

/// A driver that has not answered for so long hangs: compiling all kernels takes some seconds on a slow host.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Passes over its memory that a visit takes besides its samples: looking how it is shared, filling it, warming up, checking it.
const PASSES: f64 = 8.0;
/// A pass of a processor over a mapped buffer moves so many bytes a second at least: 58 MB/s from memory of a device that is
/// write-combined (H100).
const MAPPED_BPS: f64 = 50e6;
/// Any other pass: a processor that makes base pages for the first time fills some 2 GB/s.
const SLOWEST_BPS: f64 = 1e9;
/// What making a chase takes for each line: two accesses to memory in random order, and first touches of small pages.
const CHASE_S_PER_LINE: f64 = 2e-6;
/// How often the user's wish to stop is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A visit, as it is asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Visit {
    pub case: Case,
    pub least_samples: usize,
    pub most_samples: usize,
    pub time: Duration,
}

/// The device that a case is about, if it is about one.
pub(crate) fn device_of(case: &Case) -> Option<DeviceName> {
    match case.work {
        Work::Device(work) => Some(work.device),
        Work::Copies(work) => Some(work.device),
        _ => None,
    }
}

/// The devices of these interfaces, or why there are none, and the memory of PCI devices. Takes as long as drivers need to start:
/// each interface has a process of its own, so that one that hangs hides no other.
pub fn discover(apis: &[Api]) -> Devices {
    let started: Vec<_> = apis.iter().map(|&api| (api, Process::start(&Errand::Devices(api)))).collect();
    let mut all = Devices { pci_memory: pci_memory(&crate::machine::source()), ..Devices::default() };
    for (api, process) in started {
        match process.and_then(|mut process| process.hear::<Devices>(PATIENCE, &|| false)) {
            Ok(found) => {
                all.devices.extend(found.devices);
                all.absent.extend(found.absent);
            }
            Err(why) => all.absent.push((api, why.to_string())),
        }
    }
    all
}

/// Measures on devices. Nothing is started before a case needs it.
#[derive(Debug)]
pub(crate) struct OnDevices {
    running: BTreeMap<DeviceName, Process>,
    /// Why there is none to start, where that is known.
    refused: Option<String>,
}

impl OnDevices {
    /// `refused` is why the device can't be used, where that is known already.
    pub fn new(refused: Option<String>) -> Self {
        OnDevices { running: BTreeMap::new(), refused }
    }

    pub fn visit(&mut self, case: &Case, name: DeviceName, quota: &Quota<'_>) -> Outcome {
        let outcome = self.try_visit(case, name, quota);
        outcome.unwrap_or_else(|why| {
            // What it is doing nobody knows.
            self.running.remove(&name);
            why.into()
        })
    }

    fn try_visit(&mut self, case: &Case, name: DeviceName, quota: &Quota<'_>) -> Result<Outcome, NoVisit> {
        if let Some(why) = &self.refused {
            return Err(NoVisit::impossible(why.clone()));
        }
        let process = match self.running.entry(name) {
            Entry::Occupied(running) => running.into_mut(),
            Entry::Vacant(place) => {
                let mut process = Process::start(&Errand::Device(name))?;
                // It has opened the device, or knows why not. What hangs in that does so whatever is to be measured.
                process.hear::<()>(PATIENCE, quota.interrupted)?;
                place.insert(process)
            }
        };
        let (least_samples, most_samples, time) = (quota.least_samples, quota.most_samples, quota.time);
        process.say(&Visit { case: case.clone(), least_samples, most_samples, time })?;
        let outcome = process.hear(patience(case, quota), quota.interrupted)?;
        // A lost device stays lost for whoever lost it.
        if matches!(outcome, Outcome::Crashed { .. }) {
            self.running.remove(&name);
        }
        Ok(outcome)
    }
}

/// How long a visit may take with a driver that works.
fn patience(case: &Case, quota: &Quota<'_>) -> Duration {
    use Action::{Load, LoadNt, Store, StoreNt, Use};
    let passes = PASSES + quota.least_samples as f64;
    let [mapped, others] = match &case.work {
        Work::Device(work) if [Use, Store, StoreNt, Load, LoadNt].contains(&work.action) => [passes, 0.0],
        _ if is_checked_by_host(case) => [1.0, passes],
        _ => [0.0, passes],
    };
    let made = match &case.work {
        Work::Device(work) if work.action == Action::Chase => CHASE_S_PER_LINE / LINE as f64,
        _ => 0.0,
    };
    let each = mapped / MAPPED_BPS + others / SLOWEST_BPS + made;
    let moved = Duration::try_from_secs_f64(case.working_set.0 as f64 * each);
    PATIENCE + 3 * quota.time + moved.unwrap_or(Duration::MAX / 8)
}

/// Whether what arrived may be read by the processor, where the device shares it: through the buffer's mapping (Vulkan), or by a driver that
/// copies from one memory of the host to another (CUDA).
fn is_checked_by_host(case: &Case) -> bool {
    let is_shared = |buffer: Buffer, api| buffer != Buffer::Regular && buffer.is_reached_by_host(api);
    match &case.work {
        Work::Device(work) => !work.action.is_on_own_memory() && is_shared(work.buffer, work.device.api),
        Work::Copies(work) => work.host.is_some_and(|host| is_shared(host, work.device.api)),
        _ => false,
    }
}

/// The process that holds the drivers; it ends with this value.
#[derive(Debug)]
struct Process {
    child: WorkerProcess,
    line: Line,
    /// What it says, line by line; a thread waits for it.
    said: Receiver<String>,
}

impl Process {
    fn start(errand: &Errand<()>) -> Result<Self, NoVisit> {
        let refused = |fault: io::Error| {
            let cure = match fault.kind() {
                // This system starts none.
                io::ErrorKind::Unsupported => "",
                _ => "; raise the limit on processes (ulimit -u)",
            };
            NoVisit::impossible(format!("a process for the device's driver could not be started ({fault}){cure}"))
        };
        let (child, talk) = WorkerProcess::start().map_err(refused)?;
        let from = talk.try_clone().map_err(refused)?;
        let (tell, said) = channel();
        let mut process = Process { child, line: Line::over(talk).map_err(refused)?, said };
        let listen = move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        };
        std::thread::Builder::new().spawn(listen).map_err(refused)?;
        process.say(errand)?;
        Ok(process)
    }

    fn say(&mut self, what: &impl Serialize) -> Result<(), NoVisit> {
        let broken =
            |fault| NoVisit::Broken(format!("the process with the device's driver can't be talked to: {fault}"));
        self.line.say(what).map_err(broken)
    }

    /// What it says next.
    fn hear<T: DeserializeOwned>(&mut self, patience: Duration, interrupted: &dyn Fn() -> bool) -> Result<T, NoVisit> {
        let deadline = Instant::now() + patience;
        loop {
            match self.said.recv_timeout(LOOK) {
                Ok(text) => {
                    let astray = |fault| {
                        NoVisit::Broken(format!("the process with the device's driver lost its place: {fault}"))
                    };
                    return serde_json::from_str(&text).map_err(astray);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) if interrupted() => return Err(NoVisit::Stopped),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    let seconds = patience.as_secs();
                    return Err(NoVisit::Broken(format!(
                        "the device's driver has not answered for {seconds} s; it was ended"
                    )));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// How it ended.
    fn ended(&mut self) -> NoVisit {
        NoVisit::Broken(format!("the process with the device's driver ended {}", self.child.ended()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_core::case::USUAL_MEMORY;
    use membound_core::units::Bytes;
    use membound_core::work::copies::{CopyWork, Route};
    use membound_core::work::device::DeviceWork;

    /// By hand: 20 s, three times 2 s, 11 passes over 4 GB in 44 s, and one at 50 MB/s in 80 s, where what arrived lies in memory of the host's.
    #[test]
    fn a_check_may_read_slow_memory_of_the_host() {
        let quota = Quota { least_samples: 3, most_samples: 9, time: Duration::from_secs(2), interrupted: &|| false };
        let patience = |work| {
            let case = Case::new(work, USUAL_MEMORY, vec![0], Bytes(4_000_000_000));
            super::patience(&case, &quota).as_secs()
        };
        let device = DeviceName { api: Api::Vulkan, number: 0 };
        let buffer = |buffer, action| patience(Work::Device(DeviceWork::new(device, buffer, action)));
        assert_eq!(buffer(Buffer::LocalCoherent, Action::MapRead), 150);
        assert_eq!(buffer(Buffer::LocalCoherent, Action::CopyBoth), 150);
        assert_eq!(buffer(Buffer::Plain, Action::CopyBoth), 70);
        let copy = |host| patience(Work::Copies(CopyWork { device, route: Route::FromDevice, host, peer: None }));
        let hosts = [Some(Buffer::Coherent), Some(Buffer::Regular), None];
        assert_eq!(hosts.map(copy), [150, 70, 70]);
    }

    /// By hand: 20 s, three times 2 s, 11 passes over 1 GB, and 15.6 million lines at 2 us.
    #[test]
    fn a_chase_is_made_line_by_line() {
        let quota = Quota { least_samples: 3, most_samples: 9, time: Duration::from_secs(2), interrupted: &|| false };
        let device = DeviceName { api: Api::OpenCl, number: 0 };
        let work = Work::Device(DeviceWork::new(device, Buffer::Plain, Action::Chase));
        let patience = super::patience(&Case::new(work, USUAL_MEMORY, vec![0], Bytes(1_000_000_000)), &quota);
        assert_eq!(patience, Duration::from_millis(20_000 + 6_000 + 11_000 + 31_250));
    }

    /// By hand: 20 s, three times 2 s, and 11 passes over 1 GB; a pass over a mapped 4 GiB alone may take 74 s where it is write-combined.
    #[test]
    fn a_visit_to_much_memory_may_take_long() {
        let quota = Quota { least_samples: 3, most_samples: 9, time: Duration::from_secs(2), interrupted: &|| false };
        let patience_of = |action, working_set| {
            let device = DeviceName { api: Api::OpenCl, number: 0 };
            let work = Work::Device(DeviceWork::new(device, Buffer::Plain, action));
            super::patience(&Case::new(work, USUAL_MEMORY, vec![0], working_set), &quota)
        };
        let patience = |bytes| patience_of(Action::Load, bytes);
        assert_eq!(patience_of(Action::KernelTriad, Bytes(1_000_000_000)), Duration::from_secs(20 + 6 + 11));
        assert!(patience(Bytes::gib(4)) > Duration::from_secs(10 * 74));
        assert!(Instant::now().checked_add(patience(Bytes(u64::MAX))).is_some());
    }
}
