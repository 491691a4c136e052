//! What the processor needs for its part of an experiment on devices.

use std::time::Duration;

use crate::bench::{Probe, Tools};
use crate::memory::places::Places;
use crate::no_visit::NoVisit;
use crate::os::clock::Ticker;
use membound_core::kernel::isa::Isa;
use membound_core::units::Hertz;

const CALIBRATION: Duration = Duration::from_millis(20);

/// Clock, probe and instruction set, once a process.
pub(crate) struct HostTools {
    pub isa: Isa,
    ticker: Ticker,
    hz: Hertz,
    probe: Probe,
    places: Places,
}

impl HostTools {
    pub fn new() -> Result<Self, NoVisit> {
        let ticker = Ticker::detect();
        let hz = ticker.calibrate(CALIBRATION).hz;
        Ok(HostTools { isa: crate::asm::detect(), ticker, hz, probe: Probe::new(ticker)?, places: Places::default() })
    }

    /// The same for samples that last at least so long.
    pub fn with_samples_of(&self, sample: Duration) -> Tools<'_> {
        let HostTools { isa, ticker, hz, probe, places } = self;
        Tools { ticker: *ticker, isa: *isa, probe, places, hz: *hz, sample }
    }
}
