//! One file for each experiment.

pub mod addrmap;
pub mod bandwidth;
pub mod c2c;
pub mod characterise;
pub mod check;
pub mod choice;
pub mod copies;
pub mod device;
pub mod energy;
pub mod frame;
pub mod kinds;
pub mod latency;
pub mod numa;
pub mod offsets;
pub mod page_cache;
pub mod pages;
pub mod pingpong;
pub mod plain;
pub mod roofline;
pub mod rounding;
pub mod streams;
pub mod weights;
