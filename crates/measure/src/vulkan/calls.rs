//! The functions of the system's Vulkan loader, behind types that own what they made.
//!
//! Handles, structures and signatures are those of the crate `ash`, which are made from the standard's own registry. Functions are
//! looked up here: one that is missing is an answer. Every command is recorded, submitted and waited for before the function that
//! gave it returns: so nothing that is borrowed for a call is touched after it.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash::vk;

use crate::driver::failure::Failure;
use crate::driver::functions::{NoLibrary, load};
use crate::driver::view::{View, Word};
use crate::driver::{Access, Copying};
use crate::no_visit::NoVisit;
use crate::os::functions::functions;
use crate::vulkan::failure::CODES;

/// The loader's name with the version of its interface; without one only where development files are installed.
pub(crate) const LIBRARY: &[&str] = if cfg!(windows) { &["vulkan-1.dll"] } else { &["libvulkan.so.1", "libvulkan.so"] };
/// What a buffer is used for.
const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw() | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);
/// Bytes that vkCmdUpdateBuffer and buffers of its use are a multiple of.
const GRAIN: u64 = 8;

functions! {
    create_instance = "vkCreateInstance": vk::PFN_vkCreateInstance,
    physical_devices = "vkEnumeratePhysicalDevices": vk::PFN_vkEnumeratePhysicalDevices,
    properties = "vkGetPhysicalDeviceProperties2": vk::PFN_vkGetPhysicalDeviceProperties2,
    memory_properties = "vkGetPhysicalDeviceMemoryProperties": vk::PFN_vkGetPhysicalDeviceMemoryProperties,
    families = "vkGetPhysicalDeviceQueueFamilyProperties": vk::PFN_vkGetPhysicalDeviceQueueFamilyProperties,
    extensions = "vkEnumerateDeviceExtensionProperties": vk::PFN_vkEnumerateDeviceExtensionProperties,
    create_device = "vkCreateDevice": vk::PFN_vkCreateDevice,
    destroy_device = "vkDestroyDevice": vk::PFN_vkDestroyDevice,
    queue = "vkGetDeviceQueue": vk::PFN_vkGetDeviceQueue,
    create_pool = "vkCreateCommandPool": vk::PFN_vkCreateCommandPool,
    destroy_pool = "vkDestroyCommandPool": vk::PFN_vkDestroyCommandPool,
    allocate_commands = "vkAllocateCommandBuffers": vk::PFN_vkAllocateCommandBuffers,
    create_fence = "vkCreateFence": vk::PFN_vkCreateFence,
    destroy_fence = "vkDestroyFence": vk::PFN_vkDestroyFence,
    reset = "vkResetFences": vk::PFN_vkResetFences,
    wait = "vkWaitForFences": vk::PFN_vkWaitForFences,
    begin = "vkBeginCommandBuffer": vk::PFN_vkBeginCommandBuffer,
    end = "vkEndCommandBuffer": vk::PFN_vkEndCommandBuffer,
    barrier = "vkCmdPipelineBarrier": vk::PFN_vkCmdPipelineBarrier,
    copy = "vkCmdCopyBuffer": vk::PFN_vkCmdCopyBuffer,
    update = "vkCmdUpdateBuffer": vk::PFN_vkCmdUpdateBuffer,
    submit = "vkQueueSubmit": vk::PFN_vkQueueSubmit,
    create_buffer = "vkCreateBuffer": vk::PFN_vkCreateBuffer,
    destroy_buffer = "vkDestroyBuffer": vk::PFN_vkDestroyBuffer,
    requirements = "vkGetBufferMemoryRequirements": vk::PFN_vkGetBufferMemoryRequirements,
    allocate = "vkAllocateMemory": vk::PFN_vkAllocateMemory,
    free = "vkFreeMemory": vk::PFN_vkFreeMemory,
    bind = "vkBindBufferMemory": vk::PFN_vkBindBufferMemory,
    map = "vkMapMemory": vk::PFN_vkMapMemory,
    unmap = "vkUnmapMemory": vk::PFN_vkUnmapMemory,
    flush = "vkFlushMappedMemoryRanges": vk::PFN_vkFlushMappedMemoryRanges,
    invalidate = "vkInvalidateMappedMemoryRanges": vk::PFN_vkInvalidateMappedMemoryRanges;
}

fn done(call: &'static str, result: vk::Result) -> Result<(), Failure> {
    CODES.done(call, result.as_raw())
}

/// The loader, loaded for as long as the process lives.
#[derive(Clone, Copy)]
pub(crate) struct Loader(&'static Functions);

/// A device of some driver. The instance that it belongs to lives as long as the process.
#[derive(Clone, Copy)]
pub(crate) struct Id {
    functions: &'static Functions,
    device: vk::PhysicalDevice,
}

/// What a driver says of a device.
pub(crate) struct About {
    pub title: String,
    pub kind: vk::PhysicalDeviceType,
    /// The version of Vulkan, as the standard packs it.
    pub version: u32,
    pub driver: String,
    /// Domain, bus, device and function.
    pub pci: Option<[u32; 4]>,
    /// The largest piece of memory, in bytes.
    pub largest: u64,
}

impl Loader {
    /// Loads it; or why not.
    pub fn load() -> Result<Self, NoLibrary> {
        // SAFETY: the system's loader finds them under the names that belong to Vulkan; the caller is a process of its own. The
        // registry gives each name this signature, and the loader exports all that belong to the standard's core.
        unsafe { load(LIBRARY, |library| Functions::find(library)) }.map(Loader)
    }

    /// Has it load all drivers, and lists their devices.
    pub fn devices(self) -> Result<Vec<Id>, Failure> {
        let Loader(functions) = self;
        let application = vk::ApplicationInfo::default().application_name(c"membound").api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        let mut instance = vk::Instance::null();
        // SAFETY: the structures live until it returns; no layers and no extensions are asked for.
        done("vkCreateInstance", unsafe { (functions.create_instance)(&info, ptr::null(), &mut instance) })?;
        let found = listed("vkEnumeratePhysicalDevices", |count, to| {
            // SAFETY: it writes at most as many handles as `count` says; an instance of this loader.
            unsafe { (functions.physical_devices)(instance, count, to) }
        })?;
        Ok(found.into_iter().map(|device| Id { functions, device }).collect())
    }
}

/// What a function lists: asked once for how many, and once for what.
fn listed<T: Default + Clone>(
    call: &'static str,
    list: impl Fn(*mut u32, *mut T) -> vk::Result,
) -> Result<Vec<T>, Failure> {
    let mut count = 0;
    done(call, list(&mut count, ptr::null_mut()))?;
    let mut found = vec![T::default(); count as usize];
    match list(&mut count, found.as_mut_ptr()) {
        // There are more by now.
        vk::Result::INCOMPLETE => {}
        result => done(call, result)?,
    }
    found.truncate(count as usize);
    Ok(found)
}

impl Id {
    pub fn about(self) -> About {
        let text =
            |text: Option<&CStr>| text.map_or_else(String::new, |text| text.to_string_lossy().trim().to_string());
        let extensions = self.extensions();
        let has = |name: &CStr| extensions.iter().any(|found| found.extension_name_as_c_str() == Ok(name));
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut pci = vk::PhysicalDevicePCIBusInfoPropertiesEXT::default();
        let mut limits = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut limits);
        let tells_pci = has(c"VK_EXT_pci_bus_info");
        if tells_pci {
            all = all.push_next(&mut pci);
        }
        if has(c"VK_KHR_driver_properties") {
            all = all.push_next(&mut driver);
        }
        // SAFETY: a device of this loader; it fills the structures that are linked, of extensions that the driver has.
        unsafe { (self.functions.properties)(self.device, &mut all) };
        let about = all.properties;
        let [name, info] = [driver.driver_name_as_c_str(), driver.driver_info_as_c_str()].map(|part| text(part.ok()));
        About {
            title: text(about.device_name_as_c_str().ok()),
            kind: about.device_type,
            version: about.api_version,
            driver: format!("{name} {info}").trim().to_string(),
            pci: tells_pci.then_some([pci.pci_domain, pci.pci_bus, pci.pci_device, pci.pci_function]),
            largest: limits.max_memory_allocation_size,
        }
    }

    /// What its driver knows beyond the standard; nothing where it does not tell.
    fn extensions(self) -> Vec<vk::ExtensionProperties> {
        let found = listed("vkEnumerateDeviceExtensionProperties", |count, to| {
            // SAFETY: it writes at most as many as `count` says; a device of this loader, and no layer.
            unsafe { (self.functions.extensions)(self.device, ptr::null(), count, to) }
        });
        found.unwrap_or_default()
    }

    /// Its heaps and types of memory.
    pub fn memory(self) -> vk::PhysicalDeviceMemoryProperties {
        let mut found = vk::PhysicalDeviceMemoryProperties::default();
        // SAFETY: it fills the structure; a device of this loader.
        unsafe { (self.functions.memory_properties)(self.device, &mut found) };
        found
    }

    /// Which of its types are memory of its own, a bit for each.
    fn own_types(self) -> u32 {
        let found = self.memory();
        let types = (0..).zip(found.memory_types.iter().take(found.memory_type_count as usize));
        let own = types.filter(|(_, of)| of.property_flags.contains(vk::MemoryPropertyFlags::DEVICE_LOCAL));
        own.fold(0, |own, (number, _)| own | 1 << number)
    }

    /// Its families of queues.
    pub fn families(self) -> Vec<vk::QueueFamilyProperties> {
        let found = listed("vkGetPhysicalDeviceQueueFamilyProperties", |count, to| {
            // SAFETY: it writes at most as many as `count` says; a device of this loader.
            unsafe { (self.functions.families)(self.device, count, to) };
            vk::Result::SUCCESS
        });
        found.unwrap_or_default()
    }
}

/// Queues of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queues {
    pub family: u32,
    pub count: u32,
}

/// A queue, and what one command at a time needs there.
struct Lane {
    family: u32,
    queue: vk::Queue,
    commands: vk::CommandBuffer,
    fence: vk::Fence,
}

/// What one thread at a time may record and submit by.
#[derive(Default)]
struct Lanes {
    all: Vec<Lane>,
    /// Why a command could not be waited for: whether it has ended nobody knows, so none may follow, and what it may work on is never
    /// given back. The process ends soon.
    failed: Option<Failure>,
}

impl Lanes {
    /// A queue for each command, of the family that it goes by; none where there are too few.
    fn of(&self, families: impl Iterator<Item = u32>) -> Option<Vec<&Lane>> {
        let mut free: Vec<&Lane> = self.all.iter().collect();
        let taken = families.map(|family| {
            let first = free.iter().position(|lane| lane.family == family)?;
            Some(free.remove(first))
        });
        taken.collect()
    }
}

/// A command. Its buffers are borrowed by whoever has it run.
#[derive(Clone, Copy)]
enum Command {
    Copy { from: End, to: End, bytes: usize },
    Put { to: vk::Buffer, word: u64 },
}

/// Where a copy begins or ends.
#[derive(Clone, Copy)]
struct End {
    buffer: vk::Buffer,
    /// Whether it lies in memory of the device's own.
    is_local: bool,
}

/// A device that is open, with one queue or two of each family: all is done by the first, the second does what is to be done at the
/// same time.
pub(crate) struct Session {
    functions: &'static Functions,
    device: vk::Device,
    /// By which copies go that leave or enter the device's memory, and all but copies.
    link: u32,
    /// By which copies go that stay in it; it can be the same.
    within: u32,
    pools: Vec<vk::CommandPool>,
    lanes: Mutex<Lanes>,
    /// Which types of memory the host can map and see without flushing, the best first.
    staging: Vec<u32>,
    /// Which types are memory of the device's own, a bit for each.
    own_types: u32,
}

impl Session {
    /// Opens a device with so many queues of one family or of two.
    pub fn new(id: Id, link: Queues, within: Queues, staging: Vec<u32>) -> Result<Arc<Self>, Failure> {
        let Id { functions, device: physical } = id;
        let families = if link.family == within.family { vec![link] } else { vec![link, within] };
        let priorities = vec![1.0; link.count.max(within.count) as usize];
        let asked = |of: &Queues| {
            let priorities = &priorities[..of.count as usize];
            vk::DeviceQueueCreateInfo::default().queue_family_index(of.family).queue_priorities(priorities)
        };
        let asked: Vec<_> = families.iter().map(asked).collect();
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&asked);
        let mut device = vk::Device::null();
        // SAFETY: the structures live until it returns; each family has so many queues.
        done("vkCreateDevice", unsafe { (functions.create_device)(physical, &info, ptr::null(), &mut device) })?;
        let (link, within) = (link.family, within.family);
        let mut session = Session {
            functions,
            device,
            link,
            within,
            pools: Vec::new(),
            lanes: Mutex::default(),
            staging,
            own_types: id.own_types(),
        };
        for Queues { family, count } in families {
            let pool = session.pool(family)?;
            session.pools.push(pool);
            for number in 0..count {
                let lane = session.lane(pool, family, number)?;
                session.lanes().all.push(lane);
            }
        }
        Ok(Arc::new(session))
    }

    fn pool(&self, family: u32) -> Result<vk::CommandPool, Failure> {
        let Session { functions, device, .. } = *self;
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(family);
        let mut pool = vk::CommandPool::null();
        // SAFETY: a device that was opened with queues of this family; the structure lives until it returns.
        done("vkCreateCommandPool", unsafe { (functions.create_pool)(device, &info, ptr::null(), &mut pool) })?;
        Ok(pool)
    }

    fn lane(&self, pool: vk::CommandPool, family: u32, number: u32) -> Result<Lane, Failure> {
        let Session { functions, device, .. } = *self;
        let (mut queue, mut commands, mut fence) = (vk::Queue::null(), vk::CommandBuffer::null(), vk::Fence::null());
        // SAFETY: the device was opened with so many queues of this family.
        unsafe { (functions.queue)(device, family, number, &mut queue) };
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: it writes one handle; a pool of this device.
        done("vkAllocateCommandBuffers", unsafe { (functions.allocate_commands)(device, &info, &mut commands) })?;
        let info = vk::FenceCreateInfo::default();
        // SAFETY: it writes a handle.
        done("vkCreateFence", unsafe { (functions.create_fence)(device, &info, ptr::null(), &mut fence) })?;
        Ok(Lane { family, queue, commands, fence })
    }

    /// Whoever panicked while it had them has left no command behind that is not waited for.
    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The family of queues that a command goes by.
    fn family(&self, command: &Command) -> u32 {
        match command {
            Command::Copy { from, to, .. } if from.is_local && to.is_local => self.within,
            Command::Copy { .. } | Command::Put { .. } => self.link,
        }
    }

    /// Runs commands, each by a queue of its own, and waits for all.
    fn run(&self, commands: &[Command]) -> Result<(), NoVisit> {
        let Session { functions, device, .. } = *self;
        let mut lanes = self.lanes();
        let taken = lanes.of(commands.iter().map(|command| self.family(command))).ok_or_else(|| {
            NoVisit::impossible("the device has one queue that copies, and two copies at once need two")
        })?;
        let (mut pending, mut started) = (Vec::with_capacity(commands.len()), lanes.failed.map_or(Ok(()), Err));
        for (command, lane) in commands.iter().zip(taken) {
            started = started.and_then(|()| self.start(lane, *command));
            if started.is_ok() {
                pending.push(lane.fence);
            }
        }
        if !pending.is_empty() {
            let count = pending.len() as u32;
            // SAFETY: fences of this device, each of a command that was submitted.
            let waited = unsafe { (functions.wait)(device, count, pending.as_ptr(), vk::TRUE, u64::MAX) };
            let waited = done("vkWaitForFences", waited).and_then(|()| {
                // SAFETY: the same, and all have come.
                done("vkResetFences", unsafe { (functions.reset)(device, count, pending.as_ptr()) })
            });
            lanes.failed = waited.err();
            waited?;
        }
        Ok(started?)
    }

    /// Records and submits a command; it must be waited for before anything that it works on is given back.
    fn start(&self, lane: &Lane, command: Command) -> Result<(), Failure> {
        let functions = self.functions;
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: nothing that was submitted from this command buffer is pending; its pool lets it be recorded anew.
        done("vkBeginCommandBuffer", unsafe { (functions.begin)(lane.commands, &info) })?;
        // What either side has written before, the command sees; what it writes, either side sees after it.
        self.barrier(lane, vk::AccessFlags::MEMORY_WRITE | vk::AccessFlags::HOST_WRITE);
        match command {
            Command::Copy { from, to, bytes } => {
                let region = vk::BufferCopy { src_offset: 0, dst_offset: 0, size: bytes as u64 };
                // SAFETY: two buffers of this device that have so many bytes, and are not one.
                unsafe { (functions.copy)(lane.commands, from.buffer, to.buffer, 1, &region) };
            }
            Command::Put { to, word } => {
                let word: *const u64 = &word;
                // SAFETY: a buffer of this device of at least 8 bytes; the word is copied while it is recorded.
                unsafe { (functions.update)(lane.commands, to, 0, GRAIN, word.cast::<c_void>()) };
            }
        }
        self.barrier(lane, vk::AccessFlags::TRANSFER_WRITE);
        // SAFETY: it is being recorded.
        done("vkEndCommandBuffer", unsafe { (functions.end)(lane.commands) })?;
        let recorded = [lane.commands];
        let info = vk::SubmitInfo::default().command_buffers(&recorded);
        // SAFETY: a queue and a fence of this device, of which one thread at a time has hold; the fence is not signalled.
        done("vkQueueSubmit", unsafe { (functions.submit)(lane.queue, 1, &info, lane.fence) })
    }

    /// Has everything after it see what was written so before it, on the device and on the host.
    fn barrier(&self, lane: &Lane, written: vk::AccessFlags) {
        use vk::{AccessFlags, PipelineStageFlags};
        let stages = PipelineStageFlags::ALL_COMMANDS | PipelineStageFlags::HOST;
        let seen = AccessFlags::MEMORY_READ | AccessFlags::MEMORY_WRITE | AccessFlags::HOST_READ;
        let barrier = vk::MemoryBarrier::default().src_access_mask(written).dst_access_mask(seen);
        let (functions, none) = (self.functions, vk::DependencyFlags::empty());
        // SAFETY: it is being recorded; one barrier of memory, none of buffers or images.
        unsafe {
            (functions.barrier)(lane.commands, stages, stages, none, 1, &barrier, 0, ptr::null(), 0, ptr::null());
        }
    }

    /// Does two copies at once, each by a queue of its own, and waits for both. What begins or ends at memory of the program's goes
    /// by way of staging buffers, which are filled before and emptied after.
    pub fn both(&self, copies: [Copying<'_, Memory>; 2]) -> Result<(), NoVisit> {
        let (mut commands, mut arriving) = (Vec::new(), Vec::new());
        for copying in copies {
            match copying {
                Copying::Write { from, to } => {
                    let (sink, bytes) = (to.end(), size_of_val(from).min(to.bytes));
                    let staging = to.staging()?;
                    staging.write_mapped(from)?;
                    commands.push(Command::Copy { from: staging.end(), to: sink, bytes });
                }
                Copying::Read { from, to } => {
                    let (source, bytes) = (from.end(), size_of_val(to).min(from.bytes));
                    let staging = from.staging()?;
                    commands.push(Command::Copy { from: source, to: staging.end(), bytes });
                    arriving.push((staging, to));
                }
                Copying::Within { from, to } => commands.push(from.copying_to(to)),
            }
        }
        self.run(&commands)?;
        arriving.into_iter().try_for_each(|(staging, to)| staging.read_mapped(to))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Session { functions, device, .. } = *self;
        let lanes = std::mem::take(&mut *self.lanes());
        if lanes.failed.is_some() {
            return;
        }
        // SAFETY: all were made by `new`, and are given back once, what was not made being null. No command is pending: all were waited
        // for, since none has failed to be. Memory holds the session, so none is left.
        unsafe {
            for lane in lanes.all {
                (functions.destroy_fence)(device, lane.fence, ptr::null());
            }
            for pool in &self.pools {
                (functions.destroy_pool)(device, *pool, ptr::null());
            }
            (functions.destroy_device)(device, ptr::null());
        }
    }
}

/// A buffer, and the memory that is its own.
pub(crate) struct Memory {
    session: Arc<Session>,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    bytes: usize,
    /// Whether it is the device's own.
    is_local: bool,
    /// Whether each side sees the other's stores without a call.
    is_coherent: bool,
    /// Whether programs of its kind map it; the others go by way of a staging buffer.
    is_mappable: bool,
    mapped: Option<View>,
    /// What it was mapped for.
    access: Access,
    /// Made when it is first needed.
    staging: Option<Box<Memory>>,
}

/// What memory is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// Numbers of the types that will do, the best first.
    pub types: &'a [u32],
    /// Whether their memory is coherent.
    pub is_coherent: bool,
    /// Whether the host is to map it.
    pub is_mappable: bool,
}

impl Memory {
    pub fn new(session: &Arc<Session>, asked: Asked<'_>, bytes: usize) -> Result<Self, NoVisit> {
        let Session { functions, device, link, within, .. } = **session;
        let families = [link, within];
        let info = vk::BufferCreateInfo::default().size((bytes as u64).next_multiple_of(GRAIN).max(GRAIN)).usage(USAGE);
        // Two families that share a buffer need not hand it over to each other.
        let info = match link == within {
            true => info.sharing_mode(vk::SharingMode::EXCLUSIVE),
            false => info.sharing_mode(vk::SharingMode::CONCURRENT).queue_family_indices(&families),
        };
        let mut made = Memory {
            session: session.clone(),
            buffer: vk::Buffer::null(),
            memory: vk::DeviceMemory::null(),
            bytes,
            is_local: false,
            is_coherent: asked.is_coherent,
            is_mappable: asked.is_mappable,
            mapped: None,
            access: Access::Read,
            staging: None,
        };
        // SAFETY: it writes a handle; the structure lives until it returns.
        done("vkCreateBuffer", unsafe { (functions.create_buffer)(device, &info, ptr::null(), &mut made.buffer) })?;
        let mut needs = vk::MemoryRequirements::default();
        // SAFETY: it fills the structure; a buffer of this device.
        unsafe { (functions.requirements)(device, made.buffer, &mut needs) };
        let suits = |number: &&u32| needs.memory_type_bits & (1 << **number) != 0;
        let number = *asked.types.iter().find(suits).ok_or_else(|| {
            NoVisit::impossible("the device allows no buffer in memory of this type, for images alone it may be used")
        })?;
        made.is_local = session.own_types & (1 << number) != 0;
        let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(number);
        // SAFETY: likewise; the type is one that the device has.
        done("vkAllocateMemory", unsafe { (functions.allocate)(device, &info, ptr::null(), &mut made.memory) })?;
        // SAFETY: a buffer without memory, and memory that is as large as it needs, of a type that it may have.
        done("vkBindBufferMemory", unsafe { (functions.bind)(device, made.buffer, made.memory, 0) })?;
        Ok(made)
    }

    /// Where what goes to it or comes from it is gathered: memory that the host maps.
    fn staging(&mut self) -> Result<&mut Memory, NoVisit> {
        match &mut self.staging {
            Some(staging) => Ok(staging),
            none => {
                let asked = Asked { types: &self.session.staging, is_coherent: true, is_mappable: true };
                Ok(none.insert(Box::new(Memory::new(&self.session, asked, self.bytes)?)))
            }
        }
    }

    fn end(&self) -> End {
        End { buffer: self.buffer, is_local: self.is_local }
    }

    /// A copy of as many bytes as both have.
    fn copying_to(&self, to: &Memory) -> Command {
        assert!(Arc::ptr_eq(&self.session, &to.session) && self.buffer != to.buffer);
        Command::Copy { from: self.end(), to: to.end(), bytes: self.bytes.min(to.bytes) }
    }

    fn range(&self) -> vk::MappedMemoryRange<'static> {
        vk::MappedMemoryRange::default().memory(self.memory).offset(0).size(vk::WHOLE_SIZE)
    }

    /// Has the device see what the host stored.
    fn flush(&self) -> Result<(), Failure> {
        let Session { functions, device, .. } = *self.session;
        if self.is_coherent || self.mapped.is_none() {
            return Ok(());
        }
        // SAFETY: all of memory that is mapped.
        done("vkFlushMappedMemoryRanges", unsafe { (functions.flush)(device, 1, &self.range()) })
    }

    /// Has the host see what the device stored.
    fn invalidate(&self) -> Result<(), Failure> {
        let Session { functions, device, .. } = *self.session;
        if self.is_coherent || self.mapped.is_none() {
            return Ok(());
        }
        // SAFETY: all of memory that is mapped.
        done("vkInvalidateMappedMemoryRanges", unsafe { (functions.invalidate)(device, 1, &self.range()) })
    }

    fn map(&mut self, access: Access) -> Result<(), Failure> {
        let Session { functions, device, .. } = *self.session;
        if self.mapped.is_some() || !self.is_mappable {
            return Ok(());
        }
        let (mut start, none) = (ptr::null_mut(), vk::MemoryMapFlags::empty());
        // SAFETY: it writes an address; memory that the host can map, and that is not mapped.
        let code = unsafe { (functions.map)(device, self.memory, 0, vk::WHOLE_SIZE, none, &mut start) };
        done("vkMapMemory", code)?;
        // SAFETY: the driver has mapped the whole of it there, which is no less than the buffer, until it is unmapped and this value
        // forgets it.
        self.mapped = unsafe { View::new(start as usize, self.bytes) };
        self.access = access;
        if self.mapped.is_none() {
            return Err(CODES.failure("vkMapMemory", crate::vulkan::failure::MEMORY_MAP_FAILED));
        }
        if matches!(access, Access::Read | Access::ReadWrite) { self.invalidate() } else { Ok(()) }
    }

    fn unmap(&mut self) -> Result<(), Failure> {
        let Session { functions, device, .. } = *self.session;
        if self.mapped.is_none() {
            return Ok(());
        }
        let flushed = if self.access == Access::Read { Ok(()) } else { self.flush() };
        self.mapped = None;
        // SAFETY: memory that is mapped; nobody borrows it, since `self` is borrowed whole.
        unsafe { (functions.unmap)(device, self.memory) };
        flushed
    }

    fn write_mapped<W: Word>(&mut self, from: &[W]) -> Result<(), NoVisit> {
        self.unmap()?;
        self.map(Access::Write)?;
        self.mapped.iter_mut().for_each(|view| view.write(from));
        Ok(self.unmap()?)
    }

    fn read_mapped<W: Word>(&mut self, to: &mut [W]) -> Result<(), NoVisit> {
        self.unmap()?;
        self.map(Access::Read)?;
        self.mapped.iter().for_each(|view| view.read(to));
        Ok(self.unmap()?)
    }

    /// Copies as many bytes as both have.
    pub fn copy_to(&self, to: &Memory) -> Result<(), NoVisit> {
        self.session.run(&[self.copying_to(to)])
    }

    /// Has the device store a word to its start.
    pub fn put(&self, word: u64) -> Result<(), NoVisit> {
        self.session.run(&[Command::Put { to: self.buffer, word }])
    }
}

impl crate::driver::Memory for Memory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn view(&mut self) -> Option<&mut View> {
        self.mapped.as_mut()
    }

    fn map(&mut self, access: Access) -> Result<(), NoVisit> {
        Ok(Memory::map(self, access)?)
    }

    fn unmap(&mut self) -> Result<(), NoVisit> {
        Ok(Memory::unmap(self)?)
    }

    fn host_store(&mut self, word: u64) -> Result<(), NoVisit> {
        self.mapped.iter_mut().for_each(|view| view.store(word));
        Ok(self.flush()?)
    }

    fn host_load(&mut self) -> Result<u64, NoVisit> {
        self.invalidate()?;
        Ok(self.mapped.as_mut().map_or(0, View::load))
    }

    fn write<W: Word>(&mut self, from: &[W]) -> Result<(), NoVisit> {
        if self.is_mappable {
            return self.write_mapped(from);
        }
        let (to, bytes) = (self.end(), size_of_val(from));
        let staging = self.staging()?;
        staging.write_mapped(from)?;
        let from = staging.end();
        self.session.run(&[Command::Copy { from, to, bytes }])
    }

    fn read<W: Word>(&mut self, to: &mut [W]) -> Result<(), NoVisit> {
        if self.is_mappable {
            return self.read_mapped(to);
        }
        let (session, from, bytes) = (self.session.clone(), self.end(), size_of_val(to));
        assert!(bytes <= self.bytes);
        let staging = self.staging()?;
        session.run(&[Command::Copy { from, to: staging.end(), bytes }])?;
        staging.read_mapped(to)
    }

    fn copy(&mut self, to: &mut Self) -> Result<(), NoVisit> {
        assert!(to.bytes >= self.bytes);
        self.copy_to(to)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Session { functions, device, .. } = *self.session;
        if self.session.lanes().failed.is_some() {
            return;
        }
        // SAFETY: made by `new`, given back once, what was not made being null; memory that is mapped is unmapped by that. No command
        // uses it: all were waited for, since none has failed to be.
        unsafe {
            (functions.destroy_buffer)(device, self.buffer, ptr::null());
            (functions.free)(device, self.memory, ptr::null());
        }
    }
}
