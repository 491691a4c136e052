//! Where facts are read: recorded machines come from anybody, and their links may lead anywhere.
#![cfg(unix)]

use std::os::unix::fs::symlink;

use membound_core::machine::fact::Fact;
use membound_core::machine::source::Source;
use membound_core::units::Bytes;

#[test]
fn links_do_not_lead_out_of_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("r/sys/devices/real")).unwrap();
    std::fs::create_dir(at("out")).unwrap();
    std::fs::write(at("r/sys/devices/real/size"), "32K").unwrap();
    std::fs::write(at("out/secret"), "secret").unwrap();
    symlink("devices/real", at("r/sys/within")).unwrap();
    symlink("../../out", at("r/sys/folder")).unwrap();
    symlink("../../out/secret", at("r/sys/file")).unwrap();
    symlink(at("out/secret"), at("r/sys/absolute")).unwrap();
    symlink("r", at("link")).unwrap();
    for root in ["r", "link"] {
        let source = Source::recorded(&at(root)).unwrap();
        assert_eq!(source.size("sys/within/size"), Fact::Known(Bytes(32 << 10)), "{root}");
        assert_eq!((source.names("sys/within").len(), source.names("sys/folder").len()), (1, 0), "{root}");
        assert_eq!(source.link_name("sys/within"), Fact::Known("real".into()));
        for path in ["sys/folder/secret", "sys/file", "sys/absolute"] {
            let said = source.text(path);
            assert!(said.reason().is_some_and(|reason| reason.contains("leads out of")), "{root}: {said:?}");
            assert_eq!(source.paragraph(path).reason(), said.reason());
        }
    }
}
