//! Devices: their drivers live in a process of their own, which this one talks to.
//!
//! A driver may crash the process that loads it, never return from its first call, or leave threads behind that would run beside
//! every later sample. So this process loads none: it starts itself once more, as `crew` does, asks that process for samples, and
//! ends it when it does not answer.

use std::io::{self, BufRead, BufReader};
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::crew::{Errand, Line};
use crate::no_visit::NoVisit;
use crate::os::processes::{signal_of, start_worker};
use crate::schedule::Quota;
use membound_core::case::{Case, Work};
use membound_core::machine::devices::{DeviceName, Devices, pci_memory};
use membound_core::record::Outcome;
use membound_core::work::device::DeviceWork;
use serde::Deserialize;

/// A driver that has not answered for so long hangs: compiling all kernels takes some seconds on a slow host.
pub const PATIENCE: Duration = Duration::from_secs(20);
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

/// The work on a device, where a case is that.
pub(crate) fn work(case: &Case) -> Option<DeviceWork> {
    if let Work::Device(work) = case.work { Some(work) } else { None }
}

/// All that `--device` can name, or why there is nothing. Takes as long as drivers need to start.
pub fn discover() -> Devices {
    let listed = Process::start(&Errand::Devices).and_then(|mut process| process.hear(PATIENCE, &|| false));
    let mut devices: Devices = listed.unwrap_or_else(|why| Devices {
        absent: vec![(membound_core::machine::devices::Api::OpenCl, why.to_string())],
        ..Devices::default()
    });
    devices.pci_memory = pci_memory(&crate::machine::source());
    devices
}

/// Measures on devices. Nothing is started before a case needs it.
#[derive(Debug)]
pub(crate) struct OnDevices {
    running: Option<(DeviceName, Process)>,
    /// Why there is none to start, where that is known.
    refused: Option<String>,
}

impl OnDevices {
    /// `refused` is why the device can't be used, where that is known already.
    pub fn new(refused: Option<String>) -> Self {
        OnDevices { running: None, refused }
    }

    pub fn visit(&mut self, case: &Case, work: DeviceWork, quota: &Quota<'_>) -> Outcome {
        let outcome = self.try_visit(case, work, quota);
        outcome.unwrap_or_else(|why| {
            // What it is doing nobody knows.
            self.running = None;
            why.into()
        })
    }

    fn try_visit(&mut self, case: &Case, work: DeviceWork, quota: &Quota<'_>) -> Result<Outcome, NoVisit> {
        if let Some(why) = &self.refused {
            return Err(NoVisit::impossible(why.clone()));
        }
        if self.running.as_ref().is_none_or(|(name, _)| *name != work.device) {
            self.running = Some((work.device, Process::start(&Errand::Device(work.device))?));
        }
        let Some((_, process)) = &mut self.running else { return Err(NoVisit::Stopped) };
        let (least_samples, most_samples, time) = (quota.least_samples, quota.most_samples, quota.time);
        process.say(&Visit { case: case.clone(), least_samples, most_samples, time })?;
        let outcome = process.hear(PATIENCE + 3 * time, quota.interrupted)?;
        // A lost device stays lost for whoever lost it.
        if matches!(outcome, Outcome::Crashed { .. }) {
            self.running = None;
        }
        Ok(outcome)
    }
}

/// The process that holds the drivers; it ends with this value.
#[derive(Debug)]
struct Process {
    child: Child,
    line: Line,
    /// What it says, line by line; a thread waits for it.
    said: Receiver<String>,
}

impl Process {
    fn start(errand: &Errand<()>) -> Result<Self, NoVisit> {
        let refused = |fault: io::Error| {
            NoVisit::impossible(format!(
                "a process for the device's driver could not be started ({fault}); raise the limit on processes (ulimit -u)"
            ))
        };
        let (child, talk) = start_worker().map_err(refused)?;
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
        let how = match self.child.wait() {
            Ok(status) => match signal_of(status) {
                Some(signal) => format!("by signal {signal}"),
                None => format!("with {status}"),
            },
            Err(fault) => format!("unseen ({fault})"),
        };
        NoVisit::Broken(format!("the process with the device's driver ended {how}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended, or nobody needs what it does.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
