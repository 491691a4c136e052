//! Copies between the host's memory and devices': from where to where, one way or both at once.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::devices::DeviceName;
use crate::units::words;
use crate::work::device::Buffer;

words! {
    /// From where to where.
    Route, "route" {
        /// From the host's memory to the device's.
        ToDevice = "to-device",
        /// From the device's memory to the host's.
        FromDevice = "from-device",
        /// Both at once, between memory of their own, by two queues. The bytes of both count.
        HostBothWays = "host-both-ways",
        /// From one device's memory to another's, or to other memory of its own.
        BetweenDevices = "between-devices",
        /// The same both ways at once, by two queues. The bytes of both count.
        DevicesBothWays = "devices-both-ways",
    }
}

impl Route {
    /// Whether two copies run at once.
    pub fn is_both_ways(self) -> bool {
        matches!(self, Route::HostBothWays | Route::DevicesBothWays)
    }
}

/// A copy of the working set's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct CopyWork {
    /// The device that copies.
    pub device: DeviceName,
    /// From where to where.
    pub route: Route,
    /// Memory on the host's side: regular, or a kind that the driver has pinned; absent between devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Buffer>,
    /// The other device, which may be the same; absent where the host's memory is one end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<DeviceName>,
}

impl CopyWork {
    /// Both ends with an arrow between them: `host (pinned) -> cuda:0`.
    pub fn ends(&self) -> String {
        let CopyWork { device, route, host, peer } = self;
        let host = host.map_or_else(|| "host".to_string(), |kind| format!("host ({kind})"));
        let peer = peer.unwrap_or(*device);
        match route {
            Route::ToDevice => format!("{host} -> {device}"),
            Route::FromDevice => format!("{device} -> {host}"),
            Route::HostBothWays => format!("{host} <-> {device}"),
            Route::BetweenDevices => format!("{device} -> {peer}"),
            Route::DevicesBothWays => format!("{device} <-> {peer}"),
        }
    }
}

impl fmt::Display for CopyWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "copy, {}", self.ends())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_named() {
        let (device, peer) = ("cuda:0".parse().unwrap(), Some("cuda:1".parse().unwrap()));
        let host = CopyWork { device, route: Route::FromDevice, host: Some(Buffer::Pinned), peer: None };
        assert_eq!(host.to_string(), "copy, cuda:0 -> host (pinned)");
        let both = CopyWork { device, route: Route::DevicesBothWays, host: None, peer };
        assert_eq!(both.ends(), "cuda:0 <-> cuda:1");
    }
}
