//! The functions of a loaded MPI library, behind one face for both ABIs.
//!
//! A handle (`MPI_Comm`, `MPI_Datatype`, `MPI_Errhandler`, `MPI_Request`) is a pointer in Open MPI and an `int` in MPICH.
//! Here it is a `usize`, whose low half holds the `int`: a function that takes an `int` reads the low half of its
//! register or stack slot and nothing else (System V ABI for x86-64, section 3.2.3; Arm's AAPCS64, section 6.8.2), and one
//! that writes an `int` to a zeroed `usize` leaves its value there, as memory is little-endian. So one binary calls both.
//!
//! Values are those of the headers: `mpi.h` of MPICH 4.0.2, kept by the ABI agreement, and of Open MPI 4.1.4.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use crate::os::dynamic;
use crate::os::dynamic::Library as Loaded;
use crate::os::functions::{functions, said};

use crate::mpi::library::abi;
use membound_core::record::world::Abi;

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("handles of both ABIs share a word only where words are 64 bits and little-endian");

/// MPI_SUCCESS, in both.
pub(crate) const SUCCESS: c_int = 0;
/// More than both need: MPICH's MPI_MAX_LIBRARY_VERSION_STRING; MPI_MAX_ERROR_STRING is 512 and 256.
const TEXT_BYTES: usize = 8192;

/// An `MPI_Status`: 20 bytes in MPICH, 24 in Open MPI.
#[repr(C, align(16))]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Status([c_int; 16]);

/// A message on its way, and its bytes, which MPI may read or write until it is done. Dropped before that, they are leaked.
pub(crate) struct Request {
    handle: usize,
    bytes: Vec<u8>,
    is_done: bool,
}

impl Request {
    /// Whether [`Calls::is_done`] has said so.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Length of the message.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Its bytes, once it is done.
    pub fn into_bytes(mut self) -> Option<Vec<u8>> {
        self.is_done.then(|| std::mem::take(&mut self.bytes))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.is_done {
            std::mem::forget(std::mem::take(&mut self.bytes));
        }
    }
}

/// What an ABI puts where. Handles of Open MPI are addresses, so they are looked up.
#[derive(Debug, Clone, Copy)]
struct Values {
    abi: Abi,
    comm_world: usize,
    byte: usize,
    errors_return: usize,
    /// MPI_ANY_SOURCE.
    any_source: c_int,
    /// Where MPI_SOURCE stands among the ints of a status.
    source_at: usize,
}

type Buffer = *mut c_void;
type Data = *const c_void;
type Int = *mut c_int;

functions! {
    version = "MPI_Get_library_version"(*mut c_char, Int) -> c_int,
    init = "MPI_Init_thread"(Int, *mut *mut *mut c_char, c_int, Int) -> c_int,
    finalize = "MPI_Finalize"() -> c_int,
    error_string = "MPI_Error_string"(c_int, *mut c_char, Int) -> c_int,
    set_errhandler = "MPI_Comm_set_errhandler"(usize, usize) -> c_int,
    rank = "MPI_Comm_rank"(usize, Int) -> c_int,
    size = "MPI_Comm_size"(usize, Int) -> c_int,
    send = "MPI_Send"(Data, c_int, usize, c_int, c_int, usize) -> c_int,
    receive = "MPI_Recv"(Buffer, c_int, usize, c_int, c_int, usize, *mut Status) -> c_int,
    exchange = "MPI_Sendrecv"(
        Data, c_int, usize, c_int, c_int, Buffer, c_int, usize, c_int, c_int, usize, *mut Status
    ) -> c_int,
    start_send = "MPI_Isend"(Data, c_int, usize, c_int, c_int, usize, *mut usize) -> c_int,
    start_receive = "MPI_Irecv"(Buffer, c_int, usize, c_int, c_int, usize, *mut usize) -> c_int,
    test = "MPI_Test"(*mut usize, Int, *mut Status) -> c_int,
    probe = "MPI_Iprobe"(c_int, c_int, usize, Int, *mut Status) -> c_int,
    count = "MPI_Get_count"(*const Status, usize, Int) -> c_int,
    barrier = "MPI_Barrier"(usize) -> c_int;
}

/// Why a file that could be loaded is not used.
pub(crate) enum Refusal {
    /// The loader could not load it.
    NotLoaded(String),
    /// It is no MPI that is known here; what it says of itself, or lacks.
    Unknown(String),
}

/// A loaded library's functions and values. It stays loaded for as long as the process lives: MPI libraries leave threads
/// and exit handlers behind.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    functions: Functions,
    values: Values,
}

impl Calls {
    /// Loads a library and makes sure that it is an MPI of a known ABI, before any call that would start it. Its symbols
    /// are made visible to all, as Open MPI's plugins find theirs that way. Returns what it says of itself as well.
    pub fn load(path: &Path) -> Result<(Self, String), Refusal> {
        // SAFETY: loading runs the library's constructors: the user chose this file, or the loader found it under a name that
        // belongs to MPI libraries.
        let library = unsafe { dynamic::open(path, true) };
        let library = library.map_err(|fault| Refusal::NotLoaded(said(&fault)))?;
        // The functions are pointers into it.
        let library = std::mem::ManuallyDrop::new(library);
        // SAFETY: MPI's standard gives each name this signature, but for handles, of which see the top; the library stays.
        let functions = unsafe { Functions::find(&library) };
        let functions = functions.map_err(|name| Refusal::Unknown(format!("it has no {name}")))?;
        let version = text(|to, length| {
            // SAFETY: it writes at most MPI_MAX_LIBRARY_VERSION_STRING bytes, which `text` has; it may be called before
            // MPI_Init (MPI 3.1, section 8.1.1).
            unsafe { (functions.version)(to, length) }
        });
        let values = values(&library, &version).map_err(Refusal::Unknown)?;
        Ok((Calls { functions, values }, version))
    }

    /// How its handles look.
    pub fn abi(&self) -> Abi {
        self.values.abi
    }

    /// Starts MPI in this process; the number of the thread level that it has then. Should its own start fail, most MPIs end the process with words of their own: errors
    /// can be asked for only once there is a world.
    pub fn init(&self, threads: c_int) -> Result<c_int, c_int> {
        let mut provided = 0;
        // SAFETY: no arguments are handed over, which MPI allows since 2.0; `provided` is an int. The caller makes sure that
        // this is the first time.
        let code = unsafe { (self.functions.init)(std::ptr::null_mut(), std::ptr::null_mut(), threads, &mut provided) };
        done(code)?;
        // SAFETY: both are handles of this library, by `values`.
        done(unsafe { (self.functions.set_errhandler)(self.values.comm_world, self.values.errors_return) })?;
        Ok(provided)
    }

    pub fn finalize(&self) -> Result<(), c_int> {
        // SAFETY: MPI was started in this thread, and `Mpi` ends it once.
        done(unsafe { (self.functions.finalize)() })
    }

    /// What an error code means.
    pub fn meaning(&self, code: c_int) -> String {
        text(|to, length| {
            // SAFETY: it writes at most MPI_MAX_ERROR_STRING bytes, which `text` has.
            unsafe { (self.functions.error_string)(code, to, length) }
        })
    }

    /// Rank and size of the world.
    pub fn place(&self) -> Result<[usize; 2], c_int> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: each writes one int.
        unsafe {
            done((self.functions.rank)(self.values.comm_world, &mut rank))?;
            done((self.functions.size)(self.values.comm_world, &mut size))?;
        }
        Ok([rank, size].map(|n| usize::try_from(n).unwrap_or(0)))
    }

    pub fn send(&self, bytes: &[u8], count: c_int, to: c_int, tag: c_int) -> Result<(), c_int> {
        debug_assert!(count as usize <= bytes.len());
        let Values { comm_world, byte, .. } = self.values;
        // SAFETY: it reads `count` bytes, which are borrowed until it returns.
        done(unsafe { (self.functions.send)(bytes.as_ptr().cast(), count, byte, to, tag, comm_world) })
    }

    /// Receives at most `count` bytes; how many came.
    pub fn receive(&self, bytes: &mut [u8], count: c_int, from: c_int, tag: c_int) -> Result<usize, c_int> {
        self.count(&self.accept(bytes, count, from, tag)?)
    }

    /// The same; whoever wants to know how many came asks the status.
    pub fn accept(&self, bytes: &mut [u8], count: c_int, from: c_int, tag: c_int) -> Result<Status, c_int> {
        debug_assert!(count as usize <= bytes.len());
        let (Values { comm_world, byte, .. }, mut status) = (self.values, Status::default());
        // SAFETY: it writes at most `count` bytes, which are borrowed until it returns, and a status, for which there is room.
        done(unsafe {
            (self.functions.receive)(bytes.as_mut_ptr().cast(), count, byte, from, tag, comm_world, &mut status)
        })?;
        Ok(status)
    }

    /// Sends and receives at once; how many bytes came.
    pub fn exchange(
        &self,
        (sent, sent_count): (&[u8], c_int),
        (received, count): (&mut [u8], c_int),
        peer: c_int,
        tag: c_int,
    ) -> Result<usize, c_int> {
        debug_assert!(sent_count as usize <= sent.len() && count as usize <= received.len());
        let (Values { comm_world, byte, .. }, mut status) = (self.values, Status::default());
        // SAFETY: as in `send` and `receive`; the two borrows can't overlap.
        done(unsafe {
            (self.functions.exchange)(
                sent.as_ptr().cast(),
                sent_count,
                byte,
                peer,
                tag,
                received.as_mut_ptr().cast(),
                count,
                byte,
                peer,
                tag,
                comm_world,
                &mut status,
            )
        })?;
        self.count(&status)
    }

    /// Starts to send.
    pub fn start_send(&self, bytes: Vec<u8>, count: c_int, to: c_int, tag: c_int) -> Result<Request, c_int> {
        debug_assert!(count as usize <= bytes.len());
        let Values { comm_world, byte, .. } = self.values;
        let mut request = Request { handle: 0, bytes, is_done: false };
        let data = request.bytes.as_ptr().cast();
        // SAFETY: it reads `count` bytes until it is done; the request owns them, never touches them, and does not free
        // them before that. Its handle is a zeroed word.
        done(unsafe { (self.functions.start_send)(data, count, byte, to, tag, comm_world, &mut request.handle) })?;
        Ok(request)
    }

    /// Starts to receive a message of exactly `count` bytes.
    pub fn start_receive(&self, count: c_int, from: c_int, tag: c_int) -> Result<Request, c_int> {
        let Values { comm_world, byte, .. } = self.values;
        let bytes = vec![0; usize::try_from(count).unwrap_or(0)];
        let mut request = Request { handle: 0, bytes, is_done: false };
        let data = request.bytes.as_mut_ptr().cast();
        // SAFETY: it writes at most `count` bytes until it is done; the request owns them, never touches them, and does not
        // free them before that. Its handle is a zeroed word.
        done(unsafe { (self.functions.start_receive)(data, count, byte, from, tag, comm_world, &mut request.handle) })?;
        Ok(request)
    }

    /// Asks whether a request is done.
    pub fn is_done(&self, request: &mut Request) -> Result<bool, c_int> {
        if !request.is_done {
            let (mut flag, mut status) = (0, Status::default());
            // SAFETY: a request of this library that is not done yet; it writes an int and a status.
            done(unsafe { (self.functions.test)(&mut request.handle, &mut flag, &mut status) })?;
            request.is_done = flag != 0;
        }
        Ok(request.is_done)
    }

    /// Whether a message with this tag waits: from whom, and its bytes.
    pub fn probe(&self, tag: c_int) -> Result<Option<[usize; 2]>, c_int> {
        let (mut flag, mut status) = (0, Status::default());
        let Values { comm_world, any_source, source_at, .. } = self.values;
        // SAFETY: it writes an int and, if there is a message, a status.
        done(unsafe { (self.functions.probe)(any_source, tag, comm_world, &mut flag, &mut status) })?;
        if flag == 0 {
            return Ok(None);
        }
        Ok(Some([usize::try_from(status.0[source_at]).unwrap_or(0), self.count(&status)?]))
    }

    pub fn barrier(&self) -> Result<(), c_int> {
        // SAFETY: a handle of this library.
        done(unsafe { (self.functions.barrier)(self.values.comm_world) })
    }

    fn count(&self, status: &Status) -> Result<usize, c_int> {
        let mut count = 0;
        // SAFETY: a status that this library has filled, and an int.
        done(unsafe { (self.functions.count)(status, self.values.byte, &mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

/// mpi.h of MPICH: lines `MPI_COMM_WORLD`, `MPI_BYTE`, `MPI_ERRORS_RETURN`, `MPI_ANY_SOURCE`, and `MPI_Status`, which begins
/// with two ints of its own.
const MPICH: Values = Values {
    abi: Abi::Mpich,
    comm_world: 0x4400_0000,
    byte: 0x4c00_010d,
    errors_return: 0x5400_0001,
    any_source: -2,
    source_at: 2,
};

/// Values of the library's ABI, or what is odd about it.
fn values(library: &Loaded, version: &str) -> Result<Values, String> {
    let address = |name: &str| {
        // SAFETY: only the symbol's address is used, whatever it is.
        let symbol = unsafe { library.get::<*const c_void>(name.as_bytes()) };
        symbol.ok().map(|symbol| symbol.as_raw_ptr() as usize)
    };
    // mpi.h of Open MPI: each predefined handle is the address of a symbol; a status begins with MPI_SOURCE.
    let open_mpi = || {
        Some(Values {
            abi: Abi::OpenMpi,
            comm_world: address("ompi_mpi_comm_world\0")?,
            byte: address("ompi_mpi_byte\0")?,
            errors_return: address("ompi_mpi_errors_return\0")?,
            any_source: -1,
            source_at: 0,
        })
    };
    let (open_mpi, said) = (open_mpi(), version.lines().next().unwrap_or_default().trim().to_string());
    match (abi(version, open_mpi.is_some()), open_mpi) {
        // The standard ABI of MPI 5 has other values; a library of it says so, and may be an MPICH by name.
        _ if has_standard_abi(library) => Err(format!("{said} (with the standard ABI of MPI 5)")),
        (Some(Abi::OpenMpi), Some(values)) => Ok(values),
        (Some(Abi::Mpich), _) => Ok(MPICH),
        _ => Err(format!("it says '{said}'")),
    }
}

/// Whether this library's `mpi.h` is that of the standard ABI: MPI_Abi_get_version then tells 1 or more, else -1.
fn has_standard_abi(library: &Loaded) -> bool {
    type Version = unsafe extern "C" fn(Int, Int) -> c_int;
    // SAFETY: MPI 5.0, section 20.2, gives it this signature and allows it before MPI_Init; it writes two ints.
    unsafe {
        let Ok(version) = library.get::<Version>(b"MPI_Abi_get_version\0") else { return false };
        let (mut major, mut minor) = (-1, -1);
        (version)(&mut major, &mut minor) == SUCCESS && major > 0
    }
}

fn done(code: c_int) -> Result<(), c_int> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// The text that a function writes; empty where it fails.
fn text(write: impl FnOnce(*mut c_char, Int) -> c_int) -> String {
    let (mut bytes, mut length) = (vec![0u8; TEXT_BYTES], 0);
    let code = write(bytes.as_mut_ptr().cast(), &mut length);
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    if code == SUCCESS { String::from_utf8_lossy(&bytes[..end]).trim().to_string() } else { String::new() }
}
