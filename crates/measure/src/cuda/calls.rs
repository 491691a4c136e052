//! The functions of CUDA's driver, behind types that own what they made.
//!
//! Handles are pointers that only the driver follows; here they are `usize`, which is passed like one; devices are numbers.
//! A context is current for a thread, so every call is preceded by one that makes it so, which costs some nanoseconds. Every
//! command is waited for before the function that gave it returns: so nothing that is borrowed for a call is touched after it.
//! Values are those of cuda.h, which keeps them for all versions. Of functions that exist in several versions the names say
//! which: the driver keeps the old ones for programs that were built with them.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Arc;

use crate::cuda::failure::{CODES, PEER_ACCESS_ALREADY_ENABLED};
use crate::driver::failure::Failure;
use crate::driver::functions::{NoLibrary, load};
use crate::driver::host_memory::HostMemory;
use crate::driver::view::{View, Word};
use crate::driver::{Access, Copying};
use crate::linkage::{IS_STATIC, STATIC};
use crate::no_visit::NoVisit;
use crate::os::functions::functions;

/// The driver's name with the version of its interface; there is no other.
pub(crate) const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
/// CUDA_SUCCESS.
const SUCCESS: i32 = 0;
/// CU_STREAM_NON_BLOCKING: does not wait for the default stream.
const OWN_ORDER: u32 = 1;
/// CU_MEM_ATTACH_GLOBAL.
const ATTACH_GLOBAL: u32 = 1;
/// CU_DEVICE_CPU.
const HOST: i32 = -1;
/// CU_MEM_ADVISE_SET_PREFERRED_LOCATION and CU_MEM_ADVISE_SET_ACCESSED_BY.
const PREFERRED_LOCATION: i32 = 3;
const ACCESSED_BY: i32 = 5;
/// CU_JIT_ERROR_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES.
const JIT_LOG: [i32; 2] = [5, 6];
/// The longest text that is read of a driver.
const TEXT_MOST: usize = 4096;
/// Threads of a group: a multiple of what any device does at once, and few enough for all.
const GROUP: u32 = 256;

/// CU_MEMHOSTALLOC_* and CU_MEMHOSTREGISTER_*, where they are the same.
pub(crate) mod flags {
    pub const PORTABLE: u32 = 1;
    pub const DEVICE_MAP: u32 = 2;
    pub const WRITE_COMBINED: u32 = 4;
}

type Out<T> = *mut T;

functions! {
    init = "cuInit"(u32) -> i32,
    version = "cuDriverGetVersion"(Out<i32>) -> i32,
    count = "cuDeviceGetCount"(Out<i32>) -> i32,
    device = "cuDeviceGet"(Out<i32>, i32) -> i32,
    name = "cuDeviceGetName"(Out<c_char>, i32, i32) -> i32,
    attribute = "cuDeviceGetAttribute"(Out<i32>, i32, i32) -> i32,
    total_memory = "cuDeviceTotalMem_v2"(Out<usize>, i32) -> i32,
    pci_bus_id = "cuDeviceGetPCIBusId"(Out<c_char>, i32, i32) -> i32,
    retain_context = "cuDevicePrimaryCtxRetain"(Out<usize>, i32) -> i32,
    release_context = "cuDevicePrimaryCtxRelease_v2"(i32) -> i32,
    set_context = "cuCtxSetCurrent"(usize) -> i32,
    can_reach = "cuDeviceCanAccessPeer"(Out<i32>, i32, i32) -> i32,
    reach = "cuCtxEnablePeerAccess"(usize, u32) -> i32,
    leave = "cuCtxDisablePeerAccess"(usize) -> i32,
    create_stream = "cuStreamCreate"(Out<usize>, u32) -> i32,
    destroy_stream = "cuStreamDestroy_v2"(usize) -> i32,
    finish = "cuStreamSynchronize"(usize) -> i32,
    alloc = "cuMemAlloc_v2"(Out<u64>, usize) -> i32,
    free = "cuMemFree_v2"(u64) -> i32,
    host_alloc = "cuMemHostAlloc"(Out<usize>, usize, u32) -> i32,
    host_free = "cuMemFreeHost"(usize) -> i32,
    host_register = "cuMemHostRegister_v2"(usize, usize, u32) -> i32,
    host_unregister = "cuMemHostUnregister"(usize) -> i32,
    device_pointer = "cuMemHostGetDevicePointer_v2"(Out<u64>, usize, u32) -> i32,
    alloc_managed = "cuMemAllocManaged"(Out<u64>, usize, u32) -> i32,
    prefetch = "cuMemPrefetchAsync"(u64, usize, i32, usize) -> i32,
    advise = "cuMemAdvise"(u64, usize, i32, i32) -> i32,
    copy = "cuMemcpyAsync"(u64, u64, usize, usize) -> i32,
    copy_to_peer = "cuMemcpyPeerAsync"(u64, usize, u64, usize, usize, usize) -> i32,
    load_module = "cuModuleLoadDataEx"(Out<usize>, *const c_void, u32, Out<i32>, Out<usize>) -> i32,
    unload_module = "cuModuleUnload"(usize) -> i32,
    function = "cuModuleGetFunction"(Out<usize>, usize, *const c_char) -> i32,
    launch = "cuLaunchKernel"(usize, u32, u32, u32, u32, u32, u32, u32, usize, Out<*const c_void>, usize) -> i32;
}

fn done(call: &'static str, code: i32) -> Result<(), Failure> {
    CODES.done(call, code)
}

/// The driver, loaded for as long as the process lives: it leaves threads behind.
#[derive(Clone, Copy)]
pub(crate) struct Loaded(&'static Functions);

/// A device of the driver.
#[derive(Clone, Copy)]
pub(crate) struct Id {
    functions: &'static Functions,
    device: i32,
}

impl Loaded {
    /// Loads it; or why not.
    pub fn load() -> Result<Self, NoLibrary> {
        if IS_STATIC {
            return Err(NoLibrary::Absent(STATIC.into()));
        }
        // SAFETY: the system's loader finds it under the name that belongs to CUDA; the caller is a process of its own. cuda.h gives
        // each name this signature; a handle is a pointer, passed as a `usize` is.
        unsafe { load(&[LIBRARY], |library| Functions::find(library)) }.map(Loaded)
    }

    /// Has it find its devices; nothing else may be called before.
    pub fn init(self) -> Result<(), Failure> {
        // SAFETY: no flags are defined, so 0 is what it takes.
        done("cuInit", unsafe { (self.0.init)(0) })
    }

    /// The version of the interface that it speaks: 12040 is 12.4.
    pub fn version(self) -> Result<i32, Failure> {
        let mut version = 0;
        // SAFETY: it writes an int.
        done("cuDriverGetVersion", unsafe { (self.0.version)(&mut version) })?;
        Ok(version)
    }

    pub fn devices(self) -> Result<Vec<Id>, Failure> {
        let Loaded(functions) = self;
        let mut count = 0;
        // SAFETY: it writes an int.
        done("cuDeviceGetCount", unsafe { (functions.count)(&mut count) })?;
        let device = |number| {
            let mut device = 0;
            // SAFETY: it writes an int, for a number below the count.
            done("cuDeviceGet", unsafe { (functions.device)(&mut device, number) })?;
            Ok(Id { functions, device })
        };
        (0..count).map(device).collect()
    }
}

impl Id {
    fn text(tell: impl Fn(*mut c_char, i32) -> i32) -> Option<String> {
        // One byte more than it may write, so that the text ends.
        let mut bytes = vec![0u8; TEXT_MOST + 1];
        let code = tell(bytes.as_mut_ptr().cast(), TEXT_MOST as i32);
        let text = CStr::from_bytes_until_nul(&bytes).ok().filter(|_| code == SUCCESS)?;
        Some(text.to_string_lossy().trim().to_string())
    }

    /// Its vendor's name for it; empty where the driver does not tell.
    pub fn name(self) -> String {
        // SAFETY: it writes at most as many bytes as it is told there is room for.
        Id::text(|to, room| unsafe { (self.functions.name)(to, room, self.device) }).unwrap_or_default()
    }

    /// Its PCI address, as the driver writes it: `0000:3B:00.0`.
    pub fn pci(self) -> Option<String> {
        // SAFETY: likewise.
        Id::text(|to, room| unsafe { (self.functions.pci_bus_id)(to, room, self.device) })
    }

    /// A CUdevice_attribute; nothing where the driver does not know it.
    pub fn attribute(self, what: i32) -> Option<i32> {
        let mut value = 0;
        // SAFETY: it writes an int.
        let code = unsafe { (self.functions.attribute)(&mut value, what, self.device) };
        (code == SUCCESS).then_some(value)
    }

    /// Bytes of its memory; 0 where the driver does not tell.
    pub fn memory(self) -> u64 {
        let mut bytes = 0;
        // SAFETY: it writes a size.
        let code = unsafe { (self.functions.total_memory)(&mut bytes, self.device) };
        if code == SUCCESS { bytes as u64 } else { 0 }
    }
}

/// A device's primary context, which all of a process share, and two streams: all is done by the first, the second does what
/// is to be done at the same time.
pub(crate) struct Session {
    functions: &'static Functions,
    device: i32,
    context: usize,
    streams: [usize; 2],
}

impl Session {
    pub fn new(id: Id) -> Result<Arc<Self>, Failure> {
        let Id { functions, device } = id;
        let mut context = 0;
        // SAFETY: it writes a handle; a device of this driver.
        done("cuDevicePrimaryCtxRetain", unsafe { (functions.retain_context)(&mut context, device) })?;
        let mut session = Session { functions, device, context, streams: [0; 2] };
        session.enter()?;
        for stream in &mut session.streams {
            // SAFETY: it writes a handle; the context is current.
            done("cuStreamCreate", unsafe { (functions.create_stream)(stream, OWN_ORDER) })?;
        }
        Ok(Arc::new(session))
    }

    /// Makes the context that of this thread.
    fn enter(&self) -> Result<(), Failure> {
        // SAFETY: a context that was retained and is not released yet.
        done("cuCtxSetCurrent", unsafe { (self.functions.set_context)(self.context) })
    }

    /// Waits until all commands are done.
    fn finish(&self) -> Result<(), Failure> {
        // SAFETY: a stream of this session.
        done("cuStreamSynchronize", unsafe { (self.functions.finish)(self.streams[0]) })
    }

    /// Lets this device reach another's memory without the host in between, as long as this lives; nothing where it can't.
    pub fn reach(self: &Arc<Self>, peer: &Arc<Session>) -> Result<Option<Reach>, Failure> {
        let mut can = 0;
        // SAFETY: it writes an int; two devices of this driver.
        let code = unsafe { (self.functions.can_reach)(&mut can, self.device, peer.device) };
        done("cuDeviceCanAccessPeer", code)?;
        if can == 0 {
            return Ok(None);
        }
        self.enter()?;
        // SAFETY: the context of another device, which is not released yet; no flags are defined.
        match done("cuCtxEnablePeerAccess", unsafe { (self.functions.reach)(peer.context, 0) }) {
            Err(Failure { code: PEER_ACCESS_ALREADY_ENABLED, .. }) | Ok(()) => {}
            Err(failure) => return Err(failure),
        }
        Ok(Some(Reach { session: self.clone(), peer: peer.clone() }))
    }

    /// Does two copies at once, and waits for both.
    pub fn both(&self, copies: [Copying<'_, Memory>; 2]) -> Result<(), Failure> {
        self.enter()?;
        let mut started = Ok(());
        for (copying, stream) in copies.into_iter().zip(self.streams) {
            // SAFETY: both streams are waited for below, whatever happens, while all is borrowed by the caller.
            started = started.and_then(|()| unsafe { self.start(stream, copying) });
        }
        // SAFETY: streams of this session.
        let finished = self.streams.map(|stream| unsafe { (self.functions.finish)(stream) });
        started?;
        finished.into_iter().try_for_each(|code| done("cuStreamSynchronize", code))
    }

    /// # Safety
    /// The stream must be waited for while all of the copy is borrowed.
    unsafe fn start(&self, stream: usize, copying: Copying<'_, Memory>) -> Result<(), Failure> {
        let (to, from, bytes) = match copying {
            Copying::Write { from, to } => (to.address, from.as_ptr() as u64, size_of_val(from).min(to.bytes)),
            Copying::Read { from, to } => (to.as_mut_ptr() as u64, from.address, size_of_val(to).min(from.bytes)),
            Copying::Within { from, to } if from.session.device != to.session.device => {
                let (ours, theirs, bytes) = (from.session.context, to.session.context, from.bytes.min(to.bytes));
                // SAFETY: memory of two contexts with so many bytes each, borrowed until the stream was waited for.
                return done("cuMemcpyPeerAsync", unsafe {
                    (self.functions.copy_to_peer)(to.address, theirs, from.address, ours, bytes, stream)
                });
            }
            Copying::Within { from, to } => (to.address, from.address, from.bytes.min(to.bytes)),
        };
        // SAFETY: addresses of one space, with so many bytes each, borrowed until the stream was waited for.
        unsafe { self.start_copy(stream, to, from, bytes) }
    }

    /// # Safety
    /// Both addresses must have so many bytes, of the host's memory or this context's, until the stream was waited for.
    unsafe fn start_copy(&self, stream: usize, to: u64, from: u64, bytes: usize) -> Result<(), Failure> {
        // SAFETY: as the caller promises.
        done("cuMemcpyAsync", unsafe { (self.functions.copy)(to, from, bytes, stream) })
    }

    /// Does something by the first stream, and waits for it whatever happens.
    fn alone(&self, start: impl FnOnce(usize) -> Result<(), Failure>) -> Result<(), Failure> {
        self.enter()?;
        let started = start(self.streams[0]);
        self.finish()?;
        started
    }

    /// Compiles `source`, a text that ends with 0; where that fails, what the compiler says.
    pub fn load(self: &Arc<Self>, source: &CStr) -> Result<Module, (Failure, String)> {
        let fault = |failure| (failure, String::new());
        self.enter().map_err(fault)?;
        let (mut module, mut log, mut options) = (0, vec![0u8; TEXT_MOST + 1], JIT_LOG);
        let mut values = [log.as_mut_ptr() as usize, TEXT_MOST];
        // SAFETY: a text that ends with 0; two options with their values, a buffer and its size, which is one byte too small, so
        // that the text ends.
        let code = unsafe {
            let source = source.as_ptr().cast();
            (self.functions.load_module)(&mut module, source, 2, options.as_mut_ptr(), values.as_mut_ptr())
        };
        let said = || {
            CStr::from_bytes_until_nul(&log).map_or_else(|_| String::new(), |text| text.to_string_lossy().trim().into())
        };
        done("cuModuleLoadDataEx", code).map_err(|failure| (failure, said()))?;
        Ok(Module { session: self.clone(), module })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Session { functions, device, streams, .. } = *self;
        let _ = self.enter();
        // SAFETY: made by `new` (a stream that was not is 0), given back once. Memory and modules hold the session, so none is left.
        unsafe {
            for stream in streams.into_iter().filter(|stream| *stream != 0) {
                (functions.destroy_stream)(stream);
            }
            (functions.release_context)(device);
        }
    }
}

/// That one device reaches another's memory.
pub(crate) struct Reach {
    session: Arc<Session>,
    peer: Arc<Session>,
}

impl Drop for Reach {
    fn drop(&mut self) {
        let _ = self.session.enter();
        // SAFETY: the context of another device, which is released after this. No command uses its memory: all are waited for.
        unsafe { (self.session.functions.leave)(self.peer.context) };
    }
}

/// Compiled kernels.
pub(crate) struct Module {
    session: Arc<Session>,
    module: usize,
}

/// A kernel of a module, which is handed in again where it runs.
#[derive(Clone, Copy)]
pub(crate) struct Function(usize);

/// An argument of a kernel.
pub(crate) enum Argument<'a> {
    Memory(&'a Memory),
    Word(u64),
    Double(f64),
}

impl Module {
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// One of its kernels.
    pub fn function(&self, name: &CStr) -> Result<Function, Failure> {
        let mut function = 0;
        self.session.enter()?;
        // SAFETY: it writes a handle; a module of this session, a text that ends with 0.
        let code = unsafe { (self.session.functions.function)(&mut function, self.module, name.as_ptr()) };
        done("cuModuleGetFunction", code)?;
        Ok(Function(function))
    }

    /// Runs so many threads at least, whole groups or one, so many times one after another, and waits for them.
    ///
    /// # Safety
    /// The kernel must be of this module and have these parameters, and its threads must stay within their memory.
    pub unsafe fn run(
        &self,
        Function(function): Function,
        arguments: &[Argument<'_>],
        threads: usize,
        times: u64,
    ) -> Result<(), Failure> {
        let words: Vec<u64> = arguments.iter().map(Argument::bits).collect();
        let mut values: Vec<*const c_void> = words.iter().map(|word| ptr::from_ref(word).cast()).collect();
        let group = if threads == 1 { 1 } else { GROUP };
        let groups = threads.div_ceil(group as usize) as u32;
        let Session { functions, .. } = *self.session;
        let mut launch = |stream| {
            // SAFETY: it copies the arguments' values, all of 8 bytes; the caller vouches for the rest.
            let code =
                unsafe { (functions.launch)(function, groups, 1, 1, group, 1, 1, 0, stream, values.as_mut_ptr(), 0) };
            done("cuLaunchKernel", code)
        };
        self.session.alone(|stream| (0..times).try_for_each(|_| launch(stream)))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.session.enter();
        // SAFETY: made by `load`, unloaded once; its functions are used through it alone.
        unsafe { (self.session.functions.unload_module)(self.module) };
    }
}

impl Argument<'_> {
    fn bits(&self) -> u64 {
        match self {
            Argument::Memory(memory) => memory.address,
            Argument::Word(word) => *word,
            Argument::Double(number) => number.to_bits(),
        }
    }
}

/// How memory was made, and so how it is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Device,
    Pinned,
    Registered,
    /// Whether it is moved in advance.
    Managed {
        prefetched: bool,
    },
}

/// Memory of a device, or of the host that the device reaches.
pub(crate) struct Memory {
    session: Arc<Session>,
    origin: Origin,
    bytes: usize,
    /// Where the device sees it, or where the driver finds it for a copy.
    address: u64,
    /// Where the host sees it, if it does.
    on_host: Option<View>,
    /// What the program brought along; nobody touches it but through `contents`.
    _host: Option<HostMemory>,
}

impl Memory {
    /// Where the device sees it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The device's own.
    pub fn of_device(session: &Arc<Session>, bytes: usize) -> Result<Self, Failure> {
        let mut address = 0;
        session.enter()?;
        // SAFETY: it writes an address.
        done("cuMemAlloc", unsafe { (session.functions.alloc)(&mut address, bytes) })?;
        Ok(Memory { session: session.clone(), origin: Origin::Device, bytes, address, on_host: None, _host: None })
    }

    /// The host's, pinned by the driver.
    pub fn pinned(session: &Arc<Session>, flags: u32, bytes: usize) -> Result<Self, Failure> {
        let mut start = 0;
        session.enter()?;
        // SAFETY: it writes an address.
        done("cuMemHostAlloc", unsafe { (session.functions.host_alloc)(&mut start, bytes, flags) })?;
        let mut memory = Memory {
            session: session.clone(),
            origin: Origin::Pinned,
            bytes,
            address: start as u64,
            // SAFETY: the driver gave so many bytes there, which stay until they are given back with this value.
            on_host: unsafe { View::new(start, bytes) },
            _host: None,
        };
        match memory.find_for_device() {
            // It need not tell of what was not to be mapped, which lies at the host's address.
            Err(_) if flags & flags::DEVICE_MAP == 0 => Ok(memory),
            found => found.map(|()| memory),
        }
    }

    /// Memory of the program's, registered.
    pub fn registered(session: &Arc<Session>, bytes: usize, mut host: HostMemory) -> Result<Self, Failure> {
        let words = host.words();
        assert!(size_of_val(words) >= bytes);
        let start = words.as_mut_ptr() as usize;
        session.enter()?;
        let flags = flags::PORTABLE | flags::DEVICE_MAP;
        // SAFETY: memory of so many bytes, which lives as long as it is registered: it is dropped after that.
        done("cuMemHostRegister", unsafe { (session.functions.host_register)(start, bytes, flags) })?;
        let mut memory = Memory {
            session: session.clone(),
            origin: Origin::Registered,
            bytes,
            address: start as u64,
            // SAFETY: the program brought so many bytes along, which nobody touches but through this.
            on_host: unsafe { View::new(start, bytes) },
            _host: Some(host),
        };
        memory.find_for_device()?;
        Ok(memory)
    }

    /// Memory that the driver moves.
    pub fn managed(session: &Arc<Session>, bytes: usize, prefetched: bool) -> Result<Self, Failure> {
        let mut address = 0;
        session.enter()?;
        // SAFETY: it writes an address.
        done("cuMemAllocManaged", unsafe { (session.functions.alloc_managed)(&mut address, bytes, ATTACH_GLOBAL) })?;
        let (session, origin) = (session.clone(), Origin::Managed { prefetched });
        // SAFETY: the driver gave so many bytes there, which stay until they are given back with this value.
        let on_host = unsafe { View::new(address as usize, bytes) };
        Ok(Memory { session, origin, bytes, address, on_host, _host: None })
    }

    /// The same, with the advice to leave it with the host and to have the device reach it there.
    pub fn stays_with_host(self) -> Result<Self, Failure> {
        let Session { functions, device, .. } = *self.session;
        for (advice, place) in [(PREFERRED_LOCATION, HOST), (ACCESSED_BY, device)] {
            // SAFETY: managed memory of so many bytes; advice changes no contents.
            done("cuMemAdvise", unsafe { (functions.advise)(self.address, self.bytes, advice, place) })?;
        }
        Ok(self)
    }

    /// Asks at which address the device sees it. With one address space the device sees all that is pinned, at the address that the host
    /// has; what is write-combined or registered lies at another one (CUDA Driver API, "Unified Addressing").
    fn find_for_device(&mut self) -> Result<(), Failure> {
        let Some(start) = self.on_host.as_ref().map(View::address) else { return Ok(()) };
        let mut address = 0;
        // SAFETY: it writes an address; memory that was pinned or registered, no flags are defined.
        let code = unsafe { (self.session.functions.device_pointer)(&mut address, start, 0) };
        done("cuMemHostGetDevicePointer", code)?;
        self.address = address;
        Ok(())
    }

    /// Moves it, where it is moved in advance.
    fn moved(&self, to: i32) -> Result<(), Failure> {
        let Session { functions, .. } = *self.session;
        if self.origin != (Origin::Managed { prefetched: true }) {
            return Ok(());
        }
        // SAFETY: managed memory of so many bytes; moving it changes no contents.
        let start = |stream| unsafe { (functions.prefetch)(self.address, self.bytes, to, stream) };
        self.session.alone(|stream| done("cuMemPrefetchAsync", start(stream)))
    }
}

impl crate::driver::Memory for Memory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn view(&mut self) -> Option<&mut View> {
        self.on_host.as_mut()
    }

    fn map(&mut self, _access: Access) -> Result<(), NoVisit> {
        Ok(self.moved(HOST)?)
    }

    fn unmap(&mut self) -> Result<(), NoVisit> {
        Ok(self.moved(self.session.device)?)
    }

    fn write<W: Word>(&mut self, from: &[W]) -> Result<(), NoVisit> {
        let (session, bytes) = (&self.session, size_of_val(from));
        assert!(bytes <= self.bytes);
        let source = from.as_ptr() as u64;
        // SAFETY: borrowed bytes, no more than this has, until they were copied.
        Ok(session.alone(|stream| unsafe { session.start_copy(stream, self.address, source, bytes) })?)
    }

    fn read<W: Word>(&mut self, to: &mut [W]) -> Result<(), NoVisit> {
        let (session, bytes) = (&self.session, size_of_val(to));
        assert!(bytes <= self.bytes);
        let sink = to.as_mut_ptr() as u64;
        // SAFETY: likewise.
        Ok(session.alone(|stream| unsafe { session.start_copy(stream, sink, self.address, bytes) })?)
    }

    fn copy(&mut self, to: &mut Self) -> Result<(), NoVisit> {
        assert!(to.bytes >= self.bytes);
        let session = self.session.clone();
        // SAFETY: both are borrowed until it was waited for.
        Ok(session.alone(|stream| unsafe { session.start(stream, Copying::Within { from: self, to }) })?)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Session { functions, .. } = *self.session;
        let _ = self.session.enter();
        let start = self.on_host.as_ref().map_or(0, View::address);
        // SAFETY: made by the function that belongs to it, given back once. No command uses it: all are waited for.
        unsafe {
            match self.origin {
                Origin::Device | Origin::Managed { .. } => (functions.free)(self.address),
                Origin::Pinned => (functions.host_free)(start),
                Origin::Registered => (functions.host_unregister)(start),
            }
        };
    }
}
