//! Devices, in a process that may load their drivers: which interface has which device, and who does what with it.

use crate::crew::Line;
use crate::driver::Driver;
use crate::driver::tools::HostTools;
use crate::executor::device::Visit;
use crate::experiments::copies;
use crate::experiments::device::DeviceBench;
use crate::no_visit::NoVisit;
use crate::schedule::Quota;
use membound_core::case::Work;
use membound_core::machine::devices::{Api, Device, DeviceName, Devices};
use membound_core::record::{Measured, Outcome};

/// The devices of an interface, or why it has none.
pub fn list(api: Api) -> Devices {
    let found = match api {
        #[cfg(feature = "opencl")]
        Api::OpenCl => crate::opencl::devices().map(|all| all.into_iter().map(|(device, _)| device).collect()),
        #[cfg(feature = "cuda")]
        Api::Cuda => crate::cuda::devices().map(|all| all.into_iter().map(|(device, _)| device).collect()),
        #[cfg(feature = "vulkan")]
        Api::Vulkan => crate::vulkan::devices().map(|all| all.into_iter().map(|(device, _)| device).collect()),
        #[cfg(not(all(feature = "opencl", feature = "cuda", feature = "vulkan")))]
        _ => Err(left_out(api)),
    };
    let (devices, absent): (Vec<Device>, _) = match found {
        Ok(devices) => (devices, Vec::new()),
        Err(why) => (Vec::new(), vec![(api, why)]),
    };
    Devices { devices, pci_memory: Vec::new(), absent }
}

#[cfg(not(all(feature = "opencl", feature = "cuda", feature = "vulkan")))]
fn left_out(api: Api) -> String {
    format!("this build leaves {api} out; build with the feature {api}")
}

/// Visits on a device as it is asked to, until nobody asks any more. Says before the first that the device was opened, or could not be.
pub fn serve(name: DeviceName, line: &mut Line) {
    let mut opened = open(name);
    if line.say(&()).is_err() {
        return;
    }
    while let Ok(Some(visit)) = line.hear::<Visit>() {
        let outcome = opened.as_mut().map_err(|why| why.clone()).and_then(|device| device.visit(&visit));
        let outcome = outcome.map_or_else(Outcome::from, Outcome::from);
        if line.say(&outcome).is_err() {
            return;
        }
    }
}

fn open(name: DeviceName) -> Result<Box<dyn Visited>, NoVisit> {
    match name.api {
        #[cfg(feature = "opencl")]
        Api::OpenCl => Ok(Box::new(Opened::<crate::opencl::OpenCl>::new(name)?)),
        #[cfg(feature = "cuda")]
        Api::Cuda => Ok(Box::new(Opened::<crate::cuda::Cuda>::new(name)?)),
        #[cfg(feature = "vulkan")]
        Api::Vulkan => Ok(Box::new(Opened::<crate::vulkan::Vulkan>::new(name)?)),
        #[cfg(not(all(feature = "opencl", feature = "cuda", feature = "vulkan")))]
        api => Err(NoVisit::impossible(left_out(api))),
    }
}

/// A device of whatever interface.
trait Visited {
    fn visit(&mut self, visit: &Visit) -> Result<Measured, NoVisit>;
}

/// A device that is open, and what its experiments keep from one visit to the next.
struct Opened<D: Driver> {
    // Buffers and kernels go before the driver that made them.
    bench: Option<DeviceBench<D>>,
    peers: copies::Peers<D>,
    driver: D,
    host: HostTools,
}

impl<D: Driver> Opened<D> {
    fn new(name: DeviceName) -> Result<Self, NoVisit> {
        Ok(Opened { bench: None, peers: copies::Peers::new(), driver: D::open(name)?, host: HostTools::new()? })
    }
}

impl<D: Driver> Visited for Opened<D> {
    fn visit(&mut self, Visit { case, least_samples, most_samples, time }: &Visit) -> Result<Measured, NoVisit> {
        let Opened { bench, peers, driver, host } = self;
        // Whoever wants to stop ends this process.
        let quota =
            Quota { least_samples: *least_samples, most_samples: *most_samples, time: *time, interrupted: &|| false };
        match case.work {
            Work::Copies(work) => copies::visit(driver, peers, host, case, work, &quota),
            Work::Device(work) => {
                let bench = match bench {
                    Some(bench) => bench,
                    None => bench.insert(DeviceBench::new(driver)?),
                };
                bench.visit(driver, host, case, work, &quota)
            }
            _ => Err(NoVisit::impossible("this is no work on a device")),
        }
    }
}
