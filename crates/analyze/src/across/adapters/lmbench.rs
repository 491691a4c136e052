//! lmbench's lat_mem_rd: `"stride=64`, then lines of a size in MiB and the nanoseconds of a load. Its chain goes backward, or with `-t`
//! about at random; its output does not say which, so both of ours are held against it.

use super::tool::{Asks, Fault, Reading, Tool, bytes, lines, number};
use membound_core::kernel::chase::Order;

pub(super) const TOOL: Tool = Tool {
    name: "lat_mem_rd",
    counts: "nanoseconds of a dependent load, sizes in MiB; whether it went backward or (-t) at random its output does not say",
    is_output: |text| text.lines().any(|line| line.trim().starts_with("\"stride=")),
    readings,
};

fn readings(text: &str) -> Result<Vec<Reading>, Fault> {
    let (mut found, mut stride) = (Vec::new(), None);
    for (at, line) in lines(text) {
        if let Some(word) = line.strip_prefix("\"stride=") {
            stride = Some(number(word.trim_matches('"').trim(), at)?.min(f64::from(u32::MAX)) as u32);
            continue;
        }
        let Some(stride_bytes) = stride.filter(|_| !line.is_empty()) else { continue };
        let Some((size, latency)) = line.split_once(char::is_whitespace) else { continue };
        let size = number(size, at)? * f64::from(1 << 20);
        let value = number(latency.trim(), at)?;
        let orders = &[Order::Backward, Order::Random];
        // Sizes are printed in MiB to five places: 0.00049 is 512 B.
        let size = bytes((size / f64::from(stride_bytes)).round() * f64::from(stride_bytes));
        let name = format!("{size}, stride {stride_bytes}");
        found.push(Reading { name, value, asks: Asks::Latency { orders, stride_bytes, bytes: Some(size) } });
    }
    Ok(found)
}
