//! Rows as CSV: flat tidy columns with the JSON row's names; an object's fields become columns of their own
//! (`payload_Bps_median`), lists are joined by spaces, absent values are empty.

use super::{protocol_word, streams};
use crate::model::check::{CheckRow, Checkup};
use crate::model::compare::{Comparison, ComparisonRow};
use crate::model::energy::EnergyRow;
use crate::model::fleet::{PERCENTILES, ScreenRow};
use crate::model::page_cache::PageCacheRow;
use crate::model::pingpong::{PathRow, PingPongRow};
use crate::model::rounding::RoundingRow;
use crate::model::streams::StreamsRow;
use crate::model::{
    AddrmapRow, AnyRow, Cost, FlopsRow, HandoverRow, LatencyRow, LoadedRow, NumaRow, OffsetRow, PageRow, Quality, Rate,
    Rated, Row,
};
use crate::plan::Load;

type Column<R> = (&'static str, fn(&R) -> String);

/// The last columns of every row that was measured case by case.
const QUALITY: &[Column<Quality>] = &[
    ("samples", |quality| quality.samples.to_string()),
    ("rounds", |quality| quality.rounds.to_string()),
    ("outcome", |quality| quality.outcome.to_string()),
    ("reason", |quality| text(quality.reason.as_ref())),
    ("flags", |quality| joined(&quality.flags)),
];

const BANDWIDTH: &[Column<Row>] = &[
    ("metric", |row| row.metric.clone()),
    ("kernel", |row| row.kernel.clone()),
    ("element", |row| row.element.to_string()),
    ("store", |row| row.store.to_string()),
    ("load", |row| row.load.to_string()),
    ("width", |row| row.width.to_string()),
    ("width_bits", |row| row.width_bits.to_string()),
    ("memory", |row| row.memory.word().into()),
    ("streams", |row| streams(row).trim_start().into()),
    ("policy", |row| row.policy.to_string()),
    ("node", |row| text(row.node)),
    ("threads", |row| row.threads.to_string()),
    ("cpus", |row| joined(&row.cpus)),
    ("working_set_bytes", |row| row.working_set_bytes.0.to_string()),
    ("misaligned_bytes", |row| row.misaligned_bytes.to_string()),
    ("protocol", |row| protocol_word(row.protocol).into()),
    ("level", |row| text(row.level.as_ref())),
    ("unit", |row| row.unit.clone()),
    ("payload_Bps_best", |row| best(row.payload_bps)),
    ("payload_Bps_median", |row| median(row.payload_bps)),
    ("payload_Bps_ci95_low", |row| low(row.payload_bps)),
    ("payload_Bps_ci95_high", |row| high(row.payload_bps)),
    ("bus_Bps_best", |row| best(row.bus_bps)),
    ("bus_Bps_median", |row| median(row.bus_bps)),
    ("bus_Bps_ci95_low", |row| low(row.bus_bps)),
    ("bus_Bps_ci95_high", |row| high(row.bus_bps)),
    ("controllers_Bps_read", |row| text(row.controllers_bps.map(|rates| rates.read))),
    ("controllers_Bps_written", |row| text(row.controllers_bps.map(|rates| rates.written))),
    ("copied_Bps_best", |row| best(row.copied_bps)),
    ("copied_Bps_median", |row| median(row.copied_bps)),
    ("copied_Bps_ci95_low", |row| low(row.copied_bps)),
    ("copied_Bps_ci95_high", |row| high(row.copied_bps)),
    ("first_use_total_s_best", |row| text(row.first_use.map(|first| first.total_s.best))),
    ("first_use_total_s_median", |row| text(row.first_use.map(|first| first.total_s.median))),
    ("first_use_total_s_ci95_low", |row| text(row.first_use.map(|first| first.total_s.ci95[0]))),
    ("first_use_total_s_ci95_high", |row| text(row.first_use.map(|first| first.total_s.ci95[1]))),
    ("first_use_map_s", |row| text(row.first_use.map(|first| first.map_s))),
    ("first_use_faults", |row| text(row.first_use.map(|first| first.faults))),
    ("bytes_per_cycle", |row| text(row.bytes_per_cycle)),
    ("bytes_per_cycle_ci95_low", |row| text(row.bytes_per_cycle_ci95.map(|ci95| ci95[0]))),
    ("bytes_per_cycle_ci95_high", |row| text(row.bytes_per_cycle_ci95.map(|ci95| ci95[1]))),
    ("core_clock_hz", |row| text(row.core_clock_hz)),
    ("flops_per_s", |row| text(row.flops_per_s)),
    ("imbalance", |row| text(row.imbalance)),
    ("modes_low", |row| text(row.modes.map(|modes| modes.low))),
    ("modes_high", |row| text(row.modes.map(|modes| modes.high))),
    ("modes_high_share", |row| text(row.modes.map(|modes| modes.high_share))),
    ("obtained_bytes", |row| text(row.obtained.as_ref().map(|obtained| obtained.bytes.0))),
    ("obtained_huge_bytes", |row| text(row.obtained.as_ref().and_then(|o| o.huge_bytes).map(|bytes| bytes.0))),
    ("obtained_pages_on_node", pages_on_node),
];

const PAGE: &[Column<PageRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("work", |row| row.work.to_string()),
    ("memory", |row| row.memory.to_string()),
    ("node", |row| text(row.node)),
    ("threads", |row| row.threads.to_string()),
    ("cpus", |row| joined(&row.cpus)),
    ("working_set_bytes", |row| row.working_set_bytes.0.to_string()),
    ("unit", |row| row.unit.clone()),
    ("page_bytes", |row| row.page_bytes.0.to_string()),
    ("page_ns_best", |row| text(row.page_ns.map(|cost| cost.best))),
    ("page_ns_median", |row| text(row.page_ns.map(|cost| cost.median))),
    ("page_ns_ci95_low", |row| cost_low(row.page_ns)),
    ("page_ns_ci95_high", |row| cost_high(row.page_ns)),
    ("Bps_best", |row| best(row.bps)),
    ("Bps_median", |row| median(row.bps)),
    ("Bps_ci95_low", |row| low(row.bps)),
    ("Bps_ci95_high", |row| high(row.bps)),
    ("faults_per_page", |row| text(row.faults_per_page)),
];

const FLOPS: &[Column<FlopsRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("element", |row| row.element.to_string()),
    ("width", |row| row.width.to_string()),
    ("balance", |row| row.balance.to_string()),
    ("threads", |row| row.threads.to_string()),
    ("cpus", |row| joined(&row.cpus)),
    ("unit", |row| row.unit.clone()),
    ("flops_per_s_best", |row| best(row.flops_per_s)),
    ("flops_per_s_median", |row| median(row.flops_per_s)),
    ("flops_per_s_ci95_low", |row| low(row.flops_per_s)),
    ("flops_per_s_ci95_high", |row| high(row.flops_per_s)),
    ("flops_per_cycle", |row| text(row.flops_per_cycle)),
    ("core_clock_hz", |row| text(row.core_clock_hz)),
];

const OFFSET: &[Column<OffsetRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("scan", |row| row.scan.to_string()),
    ("place", |row| row.place.clone()),
    ("offset_first", |row| row.offsets[0].to_string()),
    ("offset_last", |row| row.offsets[1].to_string()),
    ("offset_count", |row| row.count.to_string()),
    ("memory", |row| row.memory.to_string()),
    ("cpus", |row| joined(&row.cpus)),
    ("unit", |row| row.unit.clone()),
    ("cycles_best", |row| text(row.cycles.map(|cost| cost.best))),
    ("cycles_median", |row| text(row.cycles.map(|cost| cost.median))),
    ("cycles_ci95_low", |row| cost_low(row.cycles)),
    ("cycles_ci95_high", |row| cost_high(row.cycles)),
];

const ROUNDING: &[Column<RoundingRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("kernel", |row| row.kernel.clone()),
    ("data", |row| row.data.to_string()),
    ("seed", |row| row.seed.to_string()),
    ("width", |row| row.width.to_string()),
    ("unroll", |row| row.unroll.to_string()),
    ("fused", |row| row.fused.to_string()),
    ("order", |row| row.order.to_string()),
    ("blocks", |row| row.blocks.to_string()),
    ("cpus", |row| joined(&row.cpus)),
    ("working_set_bytes", |row| row.working_set_bytes.0.to_string()),
    ("unit", |row| row.unit.clone()),
    ("result", |row| text(row.result)),
    ("result_bits", |row| text(row.result_bits.as_ref())),
    ("exact", |row| text(row.exact)),
    ("condition", |row| text(row.condition)),
    ("ulps", |row| text(row.ulps)),
    ("is_repeatable", |row| row.is_repeatable.to_string()),
    ("payload_Bps_best", |row| best(row.payload_bps)),
    ("payload_Bps_median", |row| median(row.payload_bps)),
    ("payload_Bps_ci95_low", |row| low(row.payload_bps)),
    ("payload_Bps_ci95_high", |row| high(row.payload_bps)),
];

const STREAMS: &[Column<StreamsRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("touch", |row| row.touch.to_string()),
    ("streams", |row| row.streams.to_string()),
    ("offset_bytes", |row| row.offset_bytes.to_string()),
    ("memory", |row| row.memory.to_string()),
    ("threads", |row| row.threads.to_string()),
    ("cpus", |row| joined(&row.cpus)),
    ("working_set_bytes", |row| row.working_set_bytes.0.to_string()),
    ("unit", |row| row.unit.clone()),
    ("payload_Bps_best", |row| best(row.payload_bps)),
    ("payload_Bps_median", |row| median(row.payload_bps)),
    ("payload_Bps_ci95_low", |row| low(row.payload_bps)),
    ("payload_Bps_ci95_high", |row| high(row.payload_bps)),
    ("bus_Bps_median", |row| median(row.bus_bps)),
    ("over_aligned", |row| text(row.over_aligned.map(|ratio| ratio[0]))),
    ("over_aligned_ci95_low", |row| text(row.over_aligned.map(|ratio| ratio[1]))),
    ("over_aligned_ci95_high", |row| text(row.over_aligned.map(|ratio| ratio[2]))),
];

const ENERGY: &[Column<EnergyRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("meter", |row| text(row.meter.as_ref())),
    ("kernel", |row| row.kernel.clone()),
    ("store", |row| text(row.store)),
    ("width", |row| text(row.width)),
    ("memory", |row| text(row.memory)),
    ("threads", |row| row.threads.to_string()),
    ("cpus", |row| joined(&row.cpus)),
    ("working_set_bytes", |row| row.working_set_bytes.0.to_string()),
    ("unit", |row| row.unit.clone()),
    ("power_W_best", |row| text(row.power_w.map(|cost| cost.best))),
    ("power_W_median", |row| text(row.power_w.map(|cost| cost.median))),
    ("power_W_ci95_low", |row| cost_low(row.power_w)),
    ("power_W_ci95_high", |row| cost_high(row.power_w)),
    ("idle_power_W_median", |row| text(row.idle_power_w.map(|cost| cost.median))),
    ("idle_power_W_ci95_low", |row| cost_low(row.idle_power_w)),
    ("idle_power_W_ci95_high", |row| cost_high(row.idle_power_w)),
    ("payload_Bps_best", |row| best(row.payload_bps)),
    ("payload_Bps_median", |row| median(row.payload_bps)),
    ("payload_Bps_ci95_low", |row| low(row.payload_bps)),
    ("payload_Bps_ci95_high", |row| high(row.payload_bps)),
    ("payload_J_per_GB_median", |row| text(row.payload_j_per_gb.map(|cost| cost.median))),
    ("payload_J_per_GB_ci95_low", |row| cost_low(row.payload_j_per_gb)),
    ("payload_J_per_GB_ci95_high", |row| cost_high(row.payload_j_per_gb)),
    ("bus_J_per_GB_median", |row| text(row.bus_j_per_gb.map(|cost| cost.median))),
    ("bus_J_per_GB_ci95_low", |row| cost_low(row.bus_j_per_gb)),
    ("bus_J_per_GB_ci95_high", |row| cost_high(row.bus_j_per_gb)),
    ("beyond_idle_J_per_GB_median", |row| text(row.beyond_idle_j_per_gb.map(|cost| cost.median))),
    ("beyond_idle_J_per_GB_ci95_low", |row| cost_low(row.beyond_idle_j_per_gb)),
    ("beyond_idle_J_per_GB_ci95_high", |row| cost_high(row.beyond_idle_j_per_gb)),
    ("J_per_Gflop_median", |row| text(row.j_per_gflop.map(|cost| cost.median))),
    ("J_per_Gflop_ci95_low", |row| cost_low(row.j_per_gflop)),
    ("J_per_Gflop_ci95_high", |row| cost_high(row.j_per_gflop)),
    ("step_error", |row| text(row.step_error)),
];

const LATENCY: &[Column<LatencyRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("order", |row| row.order.to_string()),
    ("stride_bytes", |row| row.stride_bytes.to_string()),
    ("block_bytes", |row| row.block_bytes.to_string()),
    ("chains", |row| row.chains.to_string()),
    ("memory", |row| row.memory.to_string()),
    ("node", |row| text(row.node)),
    ("cpus", |row| joined(&row.cpus)),
    ("working_set_bytes", |row| row.working_set_bytes.0.to_string()),
    ("level", |row| text(row.level.as_ref())),
    ("last_level", |row| text(row.last_level.as_ref())),
    ("unit", |row| row.unit.clone()),
    ("latency_ns_best", |row| text(row.latency_ns.map(|cost| cost.best))),
    ("latency_ns_median", |row| text(row.latency_ns.map(|cost| cost.median))),
    ("latency_ns_ci95_low", |row| cost_low(row.latency_ns)),
    ("latency_ns_ci95_high", |row| cost_high(row.latency_ns)),
    ("latency_cycles", |row| text(row.latency_cycles)),
    ("core_clock_hz", |row| text(row.core_clock_hz)),
];

const NUMA: &[Column<NumaRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("initiator", |row| row.initiator.clone()),
    ("initiator_cpus", |row| row.initiator_cpus.to_string()),
    ("node", |row| row.node.to_string()),
    ("way", |row| row.way.to_string()),
    ("cores", |row| row.cores.to_string()),
    ("cpus", |row| joined(&row.cpus)),
    ("memory", |row| row.memory.to_string()),
    ("working_set_bytes", |row| row.working_set_bytes.0.to_string()),
    ("unit", |row| row.unit.clone()),
    ("payload_Bps_best", |row| best(row.payload_bps)),
    ("payload_Bps_median", |row| median(row.payload_bps)),
    ("payload_Bps_ci95_low", |row| low(row.payload_bps)),
    ("payload_Bps_ci95_high", |row| high(row.payload_bps)),
    ("latency_ns_best", |row| text(row.latency_ns.map(|cost| cost.best))),
    ("latency_ns_median", |row| text(row.latency_ns.map(|cost| cost.median))),
    ("latency_ns_ci95_low", |row| cost_low(row.latency_ns)),
    ("latency_ns_ci95_high", |row| cost_high(row.latency_ns)),
];

const ADDRMAP: &[Column<AddrmapRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("memory", |row| row.memory.to_string()),
    ("node", |row| text(row.node)),
    ("cpus", |row| joined(&row.cpus)),
    ("working_set_bytes", |row| row.working_set_bytes.0.to_string()),
    ("unit", |row| row.unit.clone()),
    ("address", |row| row.address.clone()),
    ("known_bits_first", |row| row.known_bits[0].to_string()),
    ("known_bits_last", |row| row.known_bits[1].to_string()),
    ("verdict", |row| row.verdict.clone()),
    ("why", |row| text(row.why.as_ref())),
    ("targets", |row| text(row.targets)),
    ("masks", |row| joined(&row.masks)),
    ("remainder_shift", |row| text(row.remainder.map(|rest| rest.shift))),
    ("remainder_divisor", |row| text(row.remainder.map(|rest| rest.divisor))),
    ("modulo_shift", |row| text(row.modulo.map(|modulo| modulo.shift))),
    ("modulo_divisor", |row| text(row.modulo.map(|modulo| modulo.divisor))),
    ("confidence", |row| text(row.confidence)),
    ("agreed", |row| text(row.agreed)),
    ("checked", |row| text(row.checked)),
    ("apart_ns", |row| text(row.apart_ns)),
    ("conflict_ns", |row| text(row.conflict_ns)),
    ("pairs", |row| row.pairs.to_string()),
];

const HANDOVER: &[Column<HandoverRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("from", |row| row.from.to_string()),
    ("to", |row| text(row.to)),
    ("relation", |row| row.relation.to_string()),
    ("kinds", |row| joined(&row.kinds.map_or(Vec::new(), Vec::from))),
    ("home", |row| row.home.to_string()),
    ("memory", |row| row.memory.to_string()),
    ("node", |row| text(row.node)),
    ("unit", |row| row.unit.clone()),
    ("latency_ns_best", |row| text(row.latency_ns.map(|cost| cost.best))),
    ("latency_ns_median", |row| text(row.latency_ns.map(|cost| cost.median))),
    ("latency_ns_ci95_low", |row| cost_low(row.latency_ns)),
    ("latency_ns_ci95_high", |row| cost_high(row.latency_ns)),
    ("latency_cycles", |row| text(row.latency_cycles)),
];

const LOADED: &[Column<LoadedRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("load", |row| load_words(row.load).0.into()),
    ("mix", |row| load_words(row.load).1),
    ("delay_ns", |row| load_words(row.load).2),
    ("memory", |row| row.memory.to_string()),
    ("node", |row| text(row.node)),
    ("threads", |row| row.threads.to_string()),
    ("cpus", |row| joined(&row.cpus)),
    ("chase_bytes", |row| row.chase_bytes.0.to_string()),
    ("working_set_bytes", |row| row.working_set_bytes.0.to_string()),
    ("caches", |row| text(row.caches)),
    ("unit", |row| row.unit.clone()),
    ("latency_ns_best", |row| text(row.latency_ns.map(|cost| cost.best))),
    ("latency_ns_median", |row| text(row.latency_ns.map(|cost| cost.median))),
    ("latency_ns_ci95_low", |row| cost_low(row.latency_ns)),
    ("latency_ns_ci95_high", |row| cost_high(row.latency_ns)),
    ("latency_cycles", |row| text(row.latency_cycles)),
    ("payload_Bps_best", |row| best(row.payload_bps)),
    ("payload_Bps_median", |row| median(row.payload_bps)),
    ("payload_Bps_ci95_low", |row| low(row.payload_bps)),
    ("payload_Bps_ci95_high", |row| high(row.payload_bps)),
    ("bus_Bps_best", |row| best(row.bus_bps)),
    ("bus_Bps_median", |row| median(row.bus_bps)),
    ("bus_Bps_ci95_low", |row| low(row.bus_bps)),
    ("bus_Bps_ci95_high", |row| high(row.bus_bps)),
];

const PAGE_CACHE: &[Column<PageCacheRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("kernel", |row| row.kernel.clone()),
    ("memory", |row| row.memory.to_string()),
    ("threads", |row| row.threads.to_string()),
    ("cpus", |row| joined(&row.cpus)),
    ("home", |row| text(row.home)),
    ("working_set_bytes", |row| row.working_set_bytes.0.to_string()),
    ("file_bytes", |row| row.file_bytes.0.to_string()),
    ("filler", |row| row.filler.to_string()),
    ("cure", |row| row.cure.to_string()),
    ("unit", |row| row.unit.clone()),
    ("payload_Bps_best", |row| best(row.payload_bps)),
    ("payload_Bps_median", |row| median(row.payload_bps)),
    ("payload_Bps_ci95_low", |row| low(row.payload_bps)),
    ("payload_Bps_ci95_high", |row| high(row.payload_bps)),
    ("against_no_file", |row| text(row.against_no_file.map(|ratio| ratio[0]))),
    ("against_no_file_low", |row| text(row.against_no_file.map(|ratio| ratio[1]))),
    ("against_no_file_high", |row| text(row.against_no_file.map(|ratio| ratio[2]))),
    ("remote_share", |row| text(row.remote_share)),
    ("helps", |row| text(row.helps)),
    ("cached_bytes", |row| text(row.cached_bytes.map(|bytes| bytes.0))),
    ("node_free_bytes", |row| {
        joined(&row.nodes.iter().map(|node| format!("{}:{}", node.node, node.free.0)).collect::<Vec<_>>())
    }),
];

const PINGPONG: &[Column<PingPongRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("mode", |row| row.mode.to_string()),
    ("buffers", |row| row.buffers.to_string()),
    ("pairs", |row| row.pairs.to_string()),
    ("cpus", |row| joined(&row.cpus)),
    ("path", |row| row.path.to_string()),
    ("message_bytes", |row| row.message_bytes.0.to_string()),
    ("unit", |row| row.unit.clone()),
    ("one_way_ns_best", |row| text(row.one_way_ns.map(|cost| cost.best))),
    ("one_way_ns_median", |row| text(row.one_way_ns.map(|cost| cost.median))),
    ("one_way_ns_ci95_low", |row| cost_low(row.one_way_ns)),
    ("one_way_ns_ci95_high", |row| cost_high(row.one_way_ns)),
    ("payload_Bps_best", |row| best(row.payload_bps)),
    ("payload_Bps_median", |row| median(row.payload_bps)),
    ("payload_Bps_ci95_low", |row| low(row.payload_bps)),
    ("payload_Bps_ci95_high", |row| high(row.payload_bps)),
    ("slowest_pair_ns", |row| text(row.slowest_pair_ns)),
    ("fastest_pair_ns", |row| text(row.fastest_pair_ns)),
    ("model_ns", |row| text(row.model_ns)),
];

const PINGPONG_MODEL: &[Column<PathRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("path", |row| row.path.to_string()),
    ("buffers", |row| row.buffers.to_string()),
    ("parameter", |row| row.parameter.clone()),
    ("from_bytes", |row| text(row.from_bytes.map(|bytes| bytes.0))),
    ("unit", |row| row.unit.clone()),
    ("value", |row| row.value.to_string()),
    ("ci95_low", |row| text(row.ci95.map(|ends| ends[0]))),
    ("ci95_high", |row| text(row.ci95.map(|ends| ends[1]))),
    ("told_by", |row| row.told_by.to_string()),
    ("holds", |row| row.holds.to_string()),
];

const COMPARISON: &[Column<ComparisonRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("group", |row| row.group.clone()),
    ("what", |row| row.what.clone()),
    ("matched", |row| text(row.matched)),
    ("unit", |row| row.unit.clone()),
    ("better", |row| row.better.to_string()),
    ("a", |row| text(row.a)),
    ("b", |row| text(row.b)),
    ("speed", |row| text(row.speed)),
    ("speed_ci95_low", |row| text(row.speed_ci95.map(|ends| ends[0]))),
    ("speed_ci95_high", |row| text(row.speed_ci95.map(|ends| ends[1]))),
    ("p", |row| text(row.p)),
    ("p_family", |row| text(row.p_family)),
    ("verdict", |row| row.verdict.to_string()),
    ("speed_at_equal_clock", |row| text(row.speed_at_equal_clock)),
    ("speed_at_equal_clock_ci95_low", |row| text(row.speed_at_equal_clock_ci95.map(|ends| ends[0]))),
    ("speed_at_equal_clock_ci95_high", |row| text(row.speed_at_equal_clock_ci95.map(|ends| ends[1]))),
    ("clock_hz_a", |row| text(row.clock_hz.map(|clocks| clocks[0]))),
    ("clock_hz_b", |row| text(row.clock_hz.map(|clocks| clocks[1]))),
    ("draws_a", |row| row.draws[0].to_string()),
    ("draws_b", |row| row.draws[1].to_string()),
    ("reason", |row| text(row.reason.as_ref())),
];

const CHECK: &[Column<CheckRow>] = &[
    ("metric", |row| row.metric.clone()),
    ("quantity", |row| row.quantity.clone()),
    ("what", |row| row.what.clone()),
    ("kernel", |row| text(row.kernel.as_ref())),
    ("level", |row| text(row.level.as_ref())),
    ("threads", |row| row.threads.to_string()),
    ("unit", |row| row.unit.clone()),
    ("value", |row| text(row.value)),
    ("against", |row| text(row.against)),
    ("reference", |row| text(row.reference)),
    ("ratio", |row| text(row.ratio)),
    ("ratio_ci95_low", |row| text(row.ratio_ci95.map(|ends| ends[0]))),
    ("ratio_ci95_high", |row| text(row.ratio_ci95.map(|ends| ends[1]))),
    ("least_ratio", |row| text(row.least_ratio)),
    ("health", |row| row.health.to_string()),
    ("reason", |row| text(row.reason.as_ref())),
];

/// What the other threads did: the word, the mix, the pause.
fn load_words(load: Load) -> (&'static str, String, String) {
    match load {
        Load::Alone => ("alone", String::new(), String::new()),
        Load::Idle => ("idle", String::new(), String::new()),
        Load::Mixed { mix, delay_ns } => ("mixed", mix.to_string(), delay_ns.to_string()),
    }
}

/// All rows under one line of names: those of the metrics that occur; what a metric lacks is empty.
pub fn rows(rows: &[AnyRow]) -> String {
    let mut names: Vec<&str> = Vec::new();
    let cells: Vec<Vec<(&str, String)>> = rows.iter().map(cells).collect();
    let bare = BANDWIDTH.iter().map(|column| column.0).chain(QUALITY.iter().map(|column| column.0)).collect::<Vec<_>>();
    let lines = cells.iter().map(|cells| cells.iter().map(|cell| cell.0).collect::<Vec<_>>());
    for name in lines.chain(rows.is_empty().then_some(bare)).flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&names).expect("a Vec takes everything");
    for cells in &cells {
        let cell = |name: &&str| cells.iter().find(|cell| cell.0 == *name).map_or("", |cell| cell.1.as_str());
        writer.write_record(names.iter().map(cell)).expect("a Vec takes everything");
    }
    let bytes = writer.into_inner().expect("a Vec takes everything");
    String::from_utf8(bytes).expect("strings make a string")
}

const SCREEN: &[Column<ScreenRow>] = &[
    ("metric", |row| row.metric.to_string()),
    ("cohort", |row| text(row.cohort.as_ref())),
    ("host", |row| text(row.host.as_ref())),
    ("file", |row| text(row.file.as_ref())),
    ("group", |row| text(row.group.as_ref())),
    ("deviation", |row| text(row.deviation)),
    ("p", |row| text(row.p)),
    ("groups", |row| row.groups.iter().map(|group| group.group.as_str()).collect::<Vec<_>>().join("; ")),
    ("cause", |row| text(row.cause.as_ref())),
    ("sentence", |row| text(row.sentence.as_ref())),
    ("evidence", |row| row.evidence.join("; ")),
    ("cure", |row| text(row.cure.as_ref())),
    ("test", |row| text(row.test.as_ref())),
    ("switch", |row| text(row.switch.as_ref())),
    ("nodes", |row| text(row.nodes)),
    ("median", |row| text(row.median)),
    ("unit", |row| text(row.unit.as_ref())),
    ("scale", |row| text(row.scale)),
];

/// The cells of a comparison, those of one side last.
pub fn comparison(comparison: &Comparison) -> String {
    alike(COMPARISON, comparison.all())
}

/// The figures of a check.
pub fn check(checkup: &Checkup) -> String {
    alike(CHECK, checkup.rows.iter())
}

/// Rows that all have the same columns.
fn alike<'a, R: 'a>(columns: &[Column<R>], rows: impl Iterator<Item = &'a R>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns.iter().map(|column| column.0)).expect("a Vec takes everything");
    for row in rows {
        writer.write_record(columns.iter().map(|(_, value)| value(row))).expect("a Vec takes everything");
    }
    let bytes = writer.into_inner().expect("a Vec takes everything");
    String::from_utf8(bytes).expect("strings make a string")
}

/// What screening a fleet found.
pub fn fleet(rows: &[ScreenRow]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let percentiles = PERCENTILES.iter().map(|percent| format!("deviation_p{percent}"));
    let names = SCREEN.iter().map(|column| column.0.to_string()).chain(percentiles);
    writer.write_record(names).expect("a Vec takes everything");
    for row in rows {
        let percentiles = (0..PERCENTILES.len()).map(|index| text(row.percentiles.map(|all| all[index])));
        let cells = SCREEN.iter().map(|(_, value)| value(row)).chain(percentiles);
        writer.write_record(cells).expect("a Vec takes everything");
    }
    let bytes = writer.into_inner().expect("a Vec takes everything");
    String::from_utf8(bytes).expect("strings make a string")
}

fn cells(row: &AnyRow) -> Vec<(&'static str, String)> {
    match row {
        AnyRow::Bandwidth(row) => rated(BANDWIDTH, row),
        AnyRow::Page(row) => rated(PAGE, row),
        AnyRow::Offset(row) => rated(OFFSET, row),
        AnyRow::Handover(row) => rated(HANDOVER, row),
        AnyRow::Loaded(row) => rated(LOADED, row),
        AnyRow::Addrmap(row) => rated(ADDRMAP, row),
        AnyRow::Latency(row) => rated(LATENCY, row),
        AnyRow::Numa(row) => rated(NUMA, row),
        AnyRow::PageCache(row) => rated(PAGE_CACHE, row),
        AnyRow::Flops(row) => rated(FLOPS, row),
        AnyRow::Energy(row) => rated(ENERGY, row),
        AnyRow::Rounding(row) => rated(ROUNDING, row),
        AnyRow::Streams(row) => rated(STREAMS, row),
        AnyRow::PingPong(row) => rated(PINGPONG, row),
        AnyRow::PingPongModel(row) => named(PINGPONG_MODEL, row).collect(),
    }
}

fn rated<R: Rated>(columns: &[Column<R>], row: &R) -> Vec<(&'static str, String)> {
    named(columns, row).chain(named(QUALITY, row.quality())).collect()
}

fn named<R>(columns: &[Column<R>], row: &R) -> impl Iterator<Item = (&'static str, String)> {
    columns.iter().map(|(name, value)| (*name, value(row)))
}

fn cost_low(cost: Option<Cost>) -> String {
    text(cost.map(|cost| cost.ci95[0]))
}

fn cost_high(cost: Option<Cost>) -> String {
    text(cost.map(|cost| cost.ci95[1]))
}

fn text<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn joined<T: ToString>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

fn best(rate: Option<Rate>) -> String {
    text(rate.map(|rate| rate.best))
}

fn median(rate: Option<Rate>) -> String {
    text(rate.map(|rate| rate.median))
}

fn low(rate: Option<Rate>) -> String {
    text(rate.map(|rate| rate.ci95[0]))
}

fn high(rate: Option<Rate>) -> String {
    text(rate.map(|rate| rate.ci95[1]))
}

/// `node:pages` pairs.
fn pages_on_node(row: &Row) -> String {
    let pages = row.obtained.iter().flat_map(|obtained| &obtained.pages_on_node);
    joined(&pages.map(|found| format!("{}:{}", found.node, found.pages)).collect::<Vec<_>>())
}
