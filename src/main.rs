//! The `membound` command: parse, run, print; exit 0 done, 1 a measurement failed or is invalid, 2 wrong usage.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;
use membound::cli::{self, Cli, Color, Usage};
use membound::machine::MachineError;

fn main() -> ExitCode {
    membound::fleet::accept_leash();
    let cli = Cli::parse();
    match cli.color() {
        Color::Auto => anstream::ColorChoice::Auto.write_global(),
        Color::Always => anstream::ColorChoice::Always.write_global(),
        Color::Never => anstream::ColorChoice::Never.write_global(),
    }
    match cli::execute(&cli) {
        Ok(done) => print(&done.text, u8::from(done.failed)),
        Err(fault) => {
            let _ = writeln!(anstream::stderr(), "membound: {fault:#}");
            ExitCode::from(if fault.is::<Usage>() || fault.is::<MachineError>() { 2 } else { 1 })
        }
    }
}

/// A reader that has seen enough and closes the pipe is no failure.
fn print(text: &str, code: u8) -> ExitCode {
    let mut stdout = anstream::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(fault) if fault.kind() != ErrorKind::BrokenPipe => {
            eprintln!("membound: the result can't be printed: {fault}");
            ExitCode::from(1)
        }
        _ => ExitCode::from(code),
    }
}
