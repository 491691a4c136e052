//! Latency maps of several machines, or of modes of one, beside each other.

use crate::experiments::latency::map::MapLine;
use crate::section::{Section, Table};
use membound_core::in_order::each_once;
use membound_core::units::counted;

/// Maps that fit beside each other.
const ABREAST: usize = 2;

/// Memory latency over cores: a line for each node and memory kind, a column for each map by its name. Nothing where all
/// maps are empty.
pub fn latency_maps(named: &[(String, &[MapLine])]) -> Option<Section> {
    let mapped: Vec<&(String, &[MapLine])> = named.iter().filter(|(_, map)| !map.is_empty()).collect();
    let lines = || mapped.iter().flat_map(|(_, map)| map.iter());
    let names = each_once(lines().map(MapLine::name));
    let table = |mapped: &[&(String, &[MapLine])]| {
        mapped.iter().fold(Table::new("").left("memory", names.clone()), |table, (title, map)| {
            let line = |wanted: &String| map.iter().find(|line| line.name() == *wanted).map(figures);
            table.right(format!("{title}\nmax   avg   min  sd").trim_start(), names.iter().map(line))
        })
    };
    let count = lines().map(|line| line.cores.len()).max()?;
    let about = format!(
        "ns over {}: greatest, mean, least, standard deviation. Of each CPU the mean over blocks within which \
         even-numbered lines were permuted.",
        counted(count, "CPU")
    );
    Some(Section {
        id: "maps",
        title: "Memory latency by CPU and node".into(),
        about,
        tables: mapped.chunks(ABREAST).map(table).collect(),
        ..Section::default()
    })
}

fn figures(line: &MapLine) -> String {
    format!("{:.1} {:>5.1} {:>5.1} {:.1}", line.max, line.avg, line.min, line.sd)
}
