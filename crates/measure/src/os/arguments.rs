//! The words that this process was started with.

/// The command line, the program first. A name need not be text: what is none in it is replaced.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}
