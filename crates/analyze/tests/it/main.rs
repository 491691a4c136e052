//! Tests of records, reports and views, which need no measurement.

mod common;

mod adapters;
mod halves;
mod headlines;
mod kinds;
mod levels;
mod machines;
mod modules;
mod pingpong;
mod records;
mod stream;
mod watch;
