//! What the machine is: processor, microcode, kernel, hypervisor, clock source.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::arm::{self, Part};
use crate::machine::fact::Fact;
use crate::machine::source::{ArmRegisters, Hypervisor, Source};
use crate::units::Bytes;

const CPUINFO: &str = "proc/cpuinfo";

/// What the machine is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Identity {
    /// `x86_64`, `aarch64`...
    pub architecture: Fact<String>,
    /// Who designed the cores: `GenuineIntel`, `AuthenticAMD`, or the name behind an ARM implementer code.
    pub vendor: Fact<String>,
    /// The processor's name; on ARM, implementer, names and numbers of parts, each kind once.
    pub model: Fact<String>,
    /// x86 family, model and stepping, such as `25/17/1`; on ARM the revisions of the parts, such as `r0p1`.
    pub signature: Fact<String>,
    /// Revision of the microcode, as the kernel writes it. In a virtual machine it is what the hypervisor says.
    pub microcode: Fact<String>,
    /// Release of the kernel.
    pub kernel: Fact<String>,
    /// Who sold the machine and its name, from the firmware or its device tree.
    pub product: Fact<String>,
    /// What it runs under.
    pub hypervisor: Fact<Hypervisor>,
    /// The x86 time stamp counter.
    pub tsc: Tsc,
    /// The kernel's source of time: `tsc`, `kvm-clock`, `arch_sys_counter`...
    pub clocksource: Fact<String>,
    /// What 64-bit Arm processors tell; absent on others and in old records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<Arm>,
}

impl Identity {
    /// Of 32 or of 64 bits.
    pub fn is_arm(&self) -> bool {
        self.architecture.known().is_some_and(|name| ["arm", "aarch64"].contains(&name.as_str()))
    }
}

/// What a 64-bit Arm processor and its kernel tell programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// Features that programs may use, by the kernel's names for the bits of HWCAP and HWCAP2.
    pub features: Fact<String>,
    /// Bytes of the shortest line of all data caches.
    pub data_line: Fact<Bytes>,
    /// Bytes of the shortest line of all instruction caches.
    pub instruction_line: Fact<Bytes>,
    /// Bytes that one instruction (`dc zva`) fills with zeros.
    pub zero_block: Fact<Bytes>,
    /// Bytes of an SVE register, as this program has them.
    pub sve_register: Fact<Bytes>,
}

/// What the processor promises of its time stamp counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tsc {
    /// Ticks at one rate whatever the core's clock does.
    pub constant: Fact<bool>,
    /// Ticks on while the core sleeps.
    pub nonstop: Fact<bool>,
    /// Both: fit to measure time with.
    pub invariant: Fact<bool>,
}

pub(crate) fn read(source: &Source) -> Identity {
    let cpuinfo = CpuInfo::read(source);
    let architecture = cpuinfo.architecture(source);
    let flags = cpuinfo.flags();
    let is_arm = architecture.known().is_some_and(|name| name == "aarch64");
    Identity {
        arm: is_arm.then(|| arm(source, &cpuinfo)),
        vendor: cpuinfo.field("vendor_id").or_else(|| cpuinfo.arm_vendor()),
        model: cpuinfo.model(),
        signature: cpuinfo.signature(),
        microcode: cpuinfo.field("microcode").or_else(|| source.word("sys/devices/system/cpu/cpu0/microcode/version")),
        kernel: kernel(source),
        product: product(source, &cpuinfo),
        hypervisor: hypervisor(source, &flags),
        tsc: tsc(source, &flags),
        clocksource: source.word("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        architecture,
    }
}

/// `/proc/cpuinfo`: on x86 its first paragraph, as all cores but for the clock say the same; on ARM all of it. Old kernels
/// have a paragraph for each ARM core and tell what all of them are in one of its own.
struct CpuInfo(Fact<String>);

impl CpuInfo {
    fn read(source: &Source) -> Self {
        let first = source.paragraph(CPUINFO);
        let x86 = first.known().is_some_and(|text| field(text, "flags").is_some());
        CpuInfo(if x86 { first } else { source.text(CPUINFO) })
    }

    fn field(&self, name: &str) -> Fact<String> {
        let text = self.0.as_ref();
        text.and_then(|text| Fact::from_option(field(text, name), || format!("/{CPUINFO} has no '{name}'")))
    }

    /// The recorded machine's architecture; the running one's is known without asking.
    fn architecture(&self, source: &Source) -> Fact<String> {
        if source.is_live() {
            return Fact::Known(std::env::consts::ARCH.into());
        }
        let long_mode = |flags: &String| flags.split(' ').any(|flag| flag == "lm");
        self.0.as_ref().and_then(|text| match (field(text, "CPU architecture"), field(text, "flags")) {
            (Some(version), _) if version == "8" || version == "AArch64" => Fact::Known("aarch64".into()),
            (Some(version), _) if ["5", "5TE", "5TEJ", "6", "6TEJ", "7"].contains(&version.as_str()) => {
                Fact::Known("arm".into())
            }
            (_, Some(flags)) if long_mode(&flags) => Fact::Known("x86_64".into()),
            _ => Fact::absent(format!("/{CPUINFO} is of an architecture that is not known here")),
        })
    }

    /// The feature flags; absent but on x86.
    fn flags(&self) -> Fact<Vec<String>> {
        if self.is_arm() {
            return Fact::absent("an ARM processor has no such flag");
        }
        self.field("flags").map(|flags| flags.split_whitespace().map(String::from).collect())
    }

    fn is_arm(&self) -> bool {
        self.field("CPU implementer").known().is_some()
    }

    /// A 32-bit program is told a model name on ARM, too, but one that names no model.
    fn model(&self) -> Fact<String> {
        match self.is_arm() {
            true => self.arm_parts().or_else(|| self.field("model name")),
            false => self.field("model name"),
        }
    }

    fn signature(&self) -> Fact<String> {
        if self.is_arm() {
            return self.arm_revisions();
        }
        let [family, model, stepping] = ["cpu family", "model", "stepping"].map(|name| self.field(name));
        family
            .and_then(|family| model.and_then(|model| stepping.map(|stepping| format!("{family}/{model}/{stepping}"))))
    }

    fn arm_vendor(&self) -> Fact<String> {
        self.field("CPU implementer").map(|code| {
            let number = code.strip_prefix("0x").and_then(|digits| u8::from_str_radix(digits, 16).ok());
            number.map_or_else(|| format!("implementer {code}"), arm::vendor)
        })
    }

    fn arm_parts(&self) -> Fact<String> {
        let parts = self.of_paragraphs(Part::of_paragraph);
        let names: Vec<String> = parts.iter().map(|part| part.name()).collect();
        let names = Fact::from_option((!names.is_empty()).then(|| names.join(" + ")), || {
            format!("/{CPUINFO} has no 'CPU part'")
        });
        names.and_then(|names| self.arm_vendor().map(|vendor| format!("{vendor} {names}")))
    }

    /// One for all parts, or one for each, in the order of [`Self::arm_parts`].
    fn arm_revisions(&self) -> Fact<String> {
        let told = self.of_paragraphs(|text| Some((Part::of_paragraph(text)?, arm::revision(text)?)));
        let mut revisions: Vec<&str> = told.iter().map(|(_, revision)| revision.as_str()).collect();
        if revisions.iter().all(|revision| *revision == revisions[0]) {
            revisions.truncate(1);
        }
        Fact::from_option((!revisions.is_empty()).then(|| revisions.join(" + ")), || {
            format!("/{CPUINFO} has no 'CPU variant' and 'CPU revision'")
        })
    }

    /// What the paragraphs tell, in order and each once.
    fn of_paragraphs<T: Ord>(&self, read: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let text = self.0.known().map(String::as_str).unwrap_or_default();
        let told: BTreeSet<T> = text.split("\n\n").filter_map(read).collect();
        told.into_iter().collect()
    }
}

fn field(text: &str, name: &str) -> Option<String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    let value = pairs.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next();
    value.filter(|value| !value.is_empty()).map(String::from)
}

fn kernel(source: &Source) -> Fact<String> {
    source.word("proc/sys/kernel/osrelease").or_else(|| {
        source.text("proc/version").and_then(|text| {
            let release = text.strip_prefix("Linux version ").and_then(|rest| rest.split(' ').next());
            Fact::from_option(release.map(String::from), || "/proc/version names no Linux release".into())
        })
    })
}

/// By the firmware's tables; on boards that have none by the device tree, whose texts end with a zero byte, or by what old kernels
/// call the hardware.
fn product(source: &Source, cpuinfo: &CpuInfo) -> Fact<String> {
    let [vendor, name] = ["sys_vendor", "product_name"].map(|file| source.word(&format!("sys/class/dmi/id/{file}")));
    match (vendor, name) {
        (Fact::Known(vendor), Fact::Known(name)) if !name.starts_with(&vendor) => {
            Fact::Known(format!("{vendor} {name}"))
        }
        (_, Fact::Known(name)) => Fact::Known(name),
        (_, absent) => {
            let model = source.word("sys/firmware/devicetree/base/model");
            let model = model.known().map(|model| model.trim_end_matches('\0').to_string());
            model.or_else(|| cpuinfo.field("Hardware").known().cloned()).map_or(absent, Fact::Known)
        }
    }
}

/// Whether it is known to be a virtual machine.
pub(crate) fn is_virtual(source: &Source) -> bool {
    let found = hypervisor(source, &CpuInfo::read(source).flags());
    matches!(found.known(), Some(Hypervisor::Unnamed | Hypervisor::Vendor(_)))
}

fn hypervisor(source: &Source, flags: &Fact<Vec<String>>) -> Fact<Hypervisor> {
    if let Some(told) = source.processor().and_then(|processor| processor.hypervisor.as_ref()) {
        return Fact::Known(told.clone());
    }
    let named = source.word("sys/hypervisor/type").known().cloned().or_else(|| named_by_firmware(source));
    match (named, flags) {
        (Some(name), _) => Fact::Known(Hypervisor::Vendor(name)),
        (None, Fact::Known(flags)) if flags.iter().any(|flag| flag == "hypervisor") => Fact::Known(Hypervisor::Unnamed),
        (None, Fact::Known(_)) => Fact::Known(Hypervisor::None),
        (None, Fact::Absent { reason }) => Fact::absent(reason.clone()),
    }
}

/// Names that hypervisors give to the machines they make up.
fn named_by_firmware(source: &Source) -> Option<String> {
    const SIGNS: [(&str, &str); 13] = [
        ("QEMU", "QEMU"),
        ("Standard PC (", "QEMU"),
        ("KVM", "KVM"),
        ("VMware", "VMware"),
        ("VirtualBox", "VirtualBox"),
        ("HVM domU", "Xen"),
        ("Virtual Machine", "Hyper-V"),
        ("Google Compute Engine", "KVM"),
        ("Bochs", "Bochs"),
        ("Amazon EC2", "KVM"),
        // Of device trees (Linux, Documentation/devicetree/bindings): QEMU's machine `virt`, and hypervisors' own nodes.
        ("linux,dummy-virt", "QEMU"),
        ("linux,kvm", "KVM"),
        ("xen,xen", "Xen"),
    ];
    const FILES: [&str; 4] = [
        "sys/class/dmi/id/sys_vendor",
        "sys/class/dmi/id/product_name",
        "sys/firmware/devicetree/base/compatible",
        "sys/firmware/devicetree/base/hypervisor/compatible",
    ];
    let words = FILES.map(|file| source.word(file));
    // Amazon's machines without a hypervisor bear its name, too: `m6g.metal`.
    if words[1].known().is_some_and(|product| product.contains(".metal")) {
        return None;
    }
    let words = words.iter().filter_map(Fact::known);
    let mut names = words.filter_map(|word| SIGNS.iter().find(|(sign, _)| word.contains(sign)));
    names.next().map(|(_, name)| name.to_string())
}

fn arm(source: &Source, cpuinfo: &CpuInfo) -> Arm {
    let registers = source.processor().and_then(|processor| processor.arm);
    let told = |bytes: fn(ArmRegisters) -> u32, lacks: &str| match registers.map(bytes) {
        None => Fact::absent("only the running machine tells it"),
        Some(0) => Fact::absent(lacks),
        Some(bytes) => Fact::Known(Bytes(bytes.into())),
    };
    let no_sve = "this processor has no SVE, or its kernel lets no program use it";
    Arm {
        features: cpuinfo.field("Features"),
        data_line: told(|registers| registers.data_line, "its register is empty"),
        instruction_line: told(|registers| registers.instruction_line, "its register is empty"),
        zero_block: told(|registers| registers.zero_block, "its system prohibits dc zva (DCZID_EL0)"),
        sve_register: told(|registers| registers.sve_register, no_sve),
    }
}

fn tsc(source: &Source, flags: &Fact<Vec<String>>) -> Tsc {
    let flag = |name: &str| flags.as_ref().map(|flags| flags.iter().any(|flag| flag == name));
    let (constant, nonstop) = (flag("constant_tsc"), flag("nonstop_tsc"));
    let both = constant.clone().and_then(|constant| nonstop.clone().map(|nonstop| constant && nonstop));
    let invariant = source.processor().and_then(|processor| processor.has_invariant_tsc).map_or(both, Fact::Known);
    Tsc { constant, nonstop, invariant }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::source::Processor;

    fn arm_of(registers: Option<ArmRegisters>) -> Arm {
        let cpuinfo = "processor\t: 0\nFeatures\t: fp asimd atomics sve\nCPU implementer\t: 0x41\n";
        let texts = [(CPUINFO.to_string(), cpuinfo.to_string())].into();
        let source = Source::told("a test", texts, Processor { arm: registers, ..Processor::default() });
        arm(&source, &CpuInfo::read(&source))
    }

    #[test]
    fn what_an_arm_processor_tells_of_itself() {
        let registers = ArmRegisters { data_line: 64, instruction_line: 32, zero_block: 256, sve_register: 64 };
        let told = arm_of(Some(registers));
        assert_eq!(told.features, Fact::Known("fp asimd atomics sve".into()));
        let lengths = [&told.data_line, &told.instruction_line, &told.zero_block, &told.sve_register];
        assert_eq!(lengths.map(Fact::get), [64, 32, 256, 64].map(|bytes| Some(Bytes(bytes))));
    }

    #[test]
    fn what_it_does_not_tell_is_absent_with_the_reason() {
        let told = arm_of(Some(ArmRegisters { data_line: 64, instruction_line: 64, zero_block: 0, sve_register: 0 }));
        assert_eq!(told.zero_block.reason(), Some("its system prohibits dc zva (DCZID_EL0)"));
        assert!(told.sve_register.reason().is_some_and(|reason| reason.contains("no SVE")));
        let recorded = arm_of(None);
        assert_eq!(recorded.data_line.reason(), Some("only the running machine tells it"));
    }
}
