//! Copies between the host's memory and devices', and between devices. Each visit makes buffers of its own; one thread gives
//! the commands and waits for them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use crate::bench::measured;
use crate::driver::host_memory::HostMemory;
use crate::driver::tools::HostTools;
use crate::driver::{Access, Copying, Driver, Memory, SCALAR};
use crate::no_visit::NoVisit;
use crate::schedule::Quota;
use crate::solo::{Solo, Task};
use membound_core::case::Case;
use membound_core::machine::devices::DeviceName;
use membound_core::memory::Obtained;
use membound_core::record::{Measured, Samples, Unit, Volume};
use membound_core::work::copies::{CopyWork, Route};
use membound_core::work::device::Buffer;

/// A command is given and waited for in some 10 us, of which no sample should be made.
const SAMPLE: Duration = Duration::from_millis(1);

/// Other devices that a device copies to, opened when they are first needed.
pub(crate) type Peers<D> = HashMap<DeviceName, D>;

/// So many peers a device reaches at once (CUDA Driver API, `cuCtxEnablePeerAccess`); with NVSwitch more.
const PEERS_MOST: usize = 8;

/// A peer, opened if it is not. Where too many are open, they are given back before.
fn peer<'a, D: Driver>(driver: &D, peers: &'a mut Peers<D>, name: DeviceName) -> Result<&'a D, NoVisit> {
    if peers.len() == PEERS_MOST && !peers.contains_key(&name) {
        peers.clear();
    }
    Ok(match peers.entry(name) {
        Entry::Occupied(open) => open.into_mut(),
        Entry::Vacant(place) => place.insert(driver.beside(name)?),
    })
}

/// Visits a case.
pub(crate) fn visit<D: Driver>(
    driver: &D,
    peers: &mut Peers<D>,
    host: &HostTools,
    case: &Case,
    work: CopyWork,
    quota: &Quota<'_>,
) -> Result<Measured, NoVisit> {
    let peer = match work.peer.filter(|peer| *peer != work.device) {
        None => driver,
        Some(name) => peer(driver, peers, name)?,
    };
    let tools = host.with_samples_of(SAMPLE);
    let solo = Solo::new(case.cpus.first().copied().unwrap_or(0), quota, &tools);
    let ends = Ends { driver, peer, host: work.host.unwrap_or(Buffer::Regular), bytes: case.working_set.0 as usize };
    let mut copier = Copier { ends, route: work.route, legs: Vec::new() };
    let taken = solo.measure(&mut copier)?;
    let moved = case.working_set.0 * if work.route.is_both_ways() { 2 } else { 1 };
    let volume = Volume { units: 1, unit: Unit::Operation, loaded: moved, stored: moved, ..Volume::default() };
    let obtained = Obtained { bytes: case.working_set, ..Obtained::default() };
    Ok(measured(volume, taken, obtained))
}

/// Between what is copied.
struct Ends<'a, D> {
    driver: &'a D,
    peer: &'a D,
    host: Buffer,
    bytes: usize,
}

/// Memory of the host.
enum OnHost<M> {
    Regular(HostMemory),
    Pinned(M),
    /// What copies name.
    Buffer(M),
}

impl<M: Memory> OnHost<M> {
    fn copied_to<'a>(&'a mut self, to: &'a mut M) -> Copying<'a, M> {
        match self {
            OnHost::Regular(memory) => Copying::Write { from: memory.words(), to },
            OnHost::Pinned(memory) => Copying::Write { from: memory.contents(), to },
            OnHost::Buffer(from) => Copying::Within { from, to },
        }
    }

    fn copied_from<'a>(&'a mut self, from: &'a mut M) -> Copying<'a, M> {
        match self {
            OnHost::Regular(memory) => Copying::Read { from, to: memory.words() },
            OnHost::Pinned(memory) => Copying::Read { from, to: memory.contents() },
            OnHost::Buffer(to) => Copying::Within { from, to },
        }
    }

    fn read(&mut self, found: &mut [f64]) -> Result<(), NoVisit> {
        match self {
            OnHost::Regular(memory) => found.copy_from_slice(memory.words()),
            OnHost::Pinned(memory) => found.copy_from_slice(memory.contents()),
            OnHost::Buffer(memory) => memory.read(found)?,
        }
        Ok(())
    }
}

/// One copy with its two ends.
enum Leg<M> {
    To { host: OnHost<M>, device: M },
    From { device: M, host: OnHost<M> },
    Between { from: M, to: M },
}

impl<M: Memory> Leg<M> {
    fn copying(&mut self) -> Copying<'_, M> {
        match self {
            Leg::To { host, device } => host.copied_to(device),
            Leg::From { device, host } => host.copied_from(device),
            Leg::Between { from, to } => Copying::Within { from, to },
        }
    }

    /// What arrived.
    fn arrived(&mut self, bytes: usize) -> Result<Vec<f64>, NoVisit> {
        let mut found = vec![0.0; bytes / 8];
        match self {
            Leg::To { device: to, .. } | Leg::Between { to, .. } => to.read(&mut found)?,
            Leg::From { host, .. } => host.read(&mut found)?,
        }
        Ok(found)
    }
}

impl<D: Driver> Ends<'_, D> {
    /// Memory of the host, full of a number.
    fn on_host(&self, value: f64) -> Result<OnHost<D::Memory>, NoVisit> {
        Ok(match self.host {
            Buffer::Regular => OnHost::Regular(HostMemory::of_a_program(self.bytes).full_of(value)),
            kind if kind.is_copied_as_buffer() => OnHost::Buffer(self.written(self.driver, kind, value)?),
            kind => {
                let mut memory = self.driver.make(kind, self.bytes, None)?;
                memory.map(Access::ReadWrite)?;
                memory.contents().fill(value);
                OnHost::Pinned(memory)
            }
        })
    }

    /// Memory of a device, full of a number.
    fn on_device(&self, driver: &D, value: f64) -> Result<D::Memory, NoVisit> {
        self.written(driver, Buffer::Plain, value)
    }

    fn written(&self, driver: &D, kind: Buffer, value: f64) -> Result<D::Memory, NoVisit> {
        let mut memory = driver.make(kind, self.bytes, None)?;
        memory.write(&vec![value; self.bytes / 8])?;
        Ok(memory)
    }

    fn to(&self) -> Result<Leg<D::Memory>, NoVisit> {
        Ok(Leg::To { host: self.on_host(SCALAR)?, device: self.on_device(self.driver, 0.0)? })
    }

    fn from(&self) -> Result<Leg<D::Memory>, NoVisit> {
        Ok(Leg::From { device: self.on_device(self.driver, SCALAR)?, host: self.on_host(0.0)? })
    }

    fn between(&self, from: &D, to: &D) -> Result<Leg<D::Memory>, NoVisit> {
        Ok(Leg::Between { from: self.on_device(from, SCALAR)?, to: self.on_device(to, 0.0)? })
    }

    fn legs(&self, route: Route) -> Result<Vec<Leg<D::Memory>>, NoVisit> {
        let (here, there) = (self.driver, self.peer);
        Ok(match route {
            Route::ToDevice => vec![self.to()?],
            Route::FromDevice => vec![self.from()?],
            Route::HostBothWays => vec![self.to()?, self.from()?],
            Route::BetweenDevices => vec![self.between(here, there)?],
            Route::DevicesBothWays => vec![self.between(here, there)?, self.between(there, here)?],
        })
    }
}

/// Repeats a copy, or two at once.
struct Copier<'a, D: Driver> {
    ends: Ends<'a, D>,
    route: Route,
    legs: Vec<Leg<D::Memory>>,
}

impl<D: Driver> Task for Copier<'_, D> {
    fn begin(&mut self) -> Result<(), NoVisit> {
        self.legs = self.ends.legs(self.route)?;
        Ok(())
    }

    fn run(&mut self, repetitions: u64) -> Result<bool, NoVisit> {
        for _ in 0..repetitions {
            match &mut self.legs[..] {
                [one] => one.copying().alone()?,
                [one, other] => self.ends.driver.both([one.copying(), other.copying()])?,
                _ => {}
            }
        }
        Ok(true)
    }

    fn end(&mut self, _samples: &mut Samples) -> Result<(), NoVisit> {
        for leg in &mut self.legs {
            let found = leg.arrived(self.ends.bytes)?;
            if let Some((at, value)) = found.iter().enumerate().find(|(_, value)| **value != SCALAR) {
                return Err(NoVisit::Wrong(format!(
                    "data check failed: word {at} arrived as {value}, must be {SCALAR}"
                )));
            }
        }
        Ok(())
    }
}
