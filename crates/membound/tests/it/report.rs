//! The HTML page in a real browser: it draws, fits, follows the theme and asks nobody for anything.
//!
//! Without a Chromium these tests skip.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::skip::skip;
use membound_analyze::output::html;
use membound_analyze::report::Report;

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// What the page says about itself once it is drawn.
#[derive(Debug)]
struct Drawn {
    dom: String,
}

impl Drawn {
    fn data(&self, name: &str) -> &str {
        let start = format!("data-{name}=\"");
        let root = self.dom.split("<head").next().unwrap();
        let value = root.split(&start).nth(1).unwrap_or_else(|| panic!("no data-{name} in {root}"));
        value.split('"').next().unwrap()
    }

    fn count(&self, what: &str) -> usize {
        self.dom.matches(what).count()
    }

    fn assert_sound(&self) {
        assert_eq!((self.data("ready"), self.data("errors")), ("1", "0"));
        assert_eq!(self.data("charts"), self.count("class=\"chart\"").to_string(), "every chart is drawn");
        let [wide, room] = ["scroll-width", "inner-width"].map(|name| self.data(name).parse::<u32>().unwrap());
        assert!(wide <= room, "the page is {wide} px wide in a window of {room} px");
    }

    /// What MEASURE told of its boxes.
    fn assert_in_place(&self, what: &str) {
        for key in ["over", "upon", "faint", "deaf"] {
            assert_eq!(self.data(key), "0", "{what}: {key}");
        }
    }
}

/// The page in a file that stays for a look: target/tmp/NAME.html.
fn file(name: &str, page: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.html"));
    std::fs::write(&path, page).unwrap();
    path
}

/// The DOM after the scripts have run, or nothing where there is no browser.
fn draw(path: &Path, flags: &[&str]) -> Option<Drawn> {
    for browser in BROWSERS {
        let profile = tempfile::tempdir().unwrap();
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--virtual-time-budget=20000", "--dump-dom"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(flags)
            .arg(format!("file://{}", path.display()))
            .output();
        let Ok(output) = output else { continue };
        let dom = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(dom.contains("<html"), "{browser}: {}", String::from_utf8_lossy(&output.stderr));
        return Some(Drawn { dom });
    }
    skip(format!("no browser found ({BROWSERS:?})"));
    None
}

const DARK: &str = "--blink-settings=preferredColorScheme=0";
const LIGHT: &str = "--blink-settings=preferredColorScheme=1";

#[test]
fn the_page_stands_alone() {
    let page = html::page(&crate::common::reports::rich());
    assert!(page.len() < 900_000, "{} bytes", page.len());
    for outward in ["src=", "http://", "https://", "<link", "@import", "url("] {
        // The packed library is base64: none of these can be in it.
        assert!(!page.contains(outward), "{outward}");
    }
    assert!(page.matches("href=").count() == page.matches("href=\"#").count(), "links stay on the page");
    assert!(page.contains("default-src 'none'"));
}

/// What stands at the head of a page is not repeated in its section, and no table has an empty caption.
#[test]
fn the_page_says_its_answer_once() {
    let mut report = Report { rows: crate::common::reports::single().rows, ..crate::common::reports::empty() };
    report.crossovers = crate::common::reports::rich().crossovers;
    let sections: Vec<_> = report.sections().flat_map(|(_, sections)| sections).collect();
    report.findings = sections.iter().flat_map(|section| section.sentences.clone()).collect();
    assert!(!report.findings.is_empty());
    let page = html::page(&report);
    for finding in &report.findings {
        assert_eq!(page.matches(finding.as_str()).count(), 1, "{finding}");
    }
    assert!(!html::page(&crate::common::reports::rich()).contains("<caption></caption>"));
}

#[test]
fn foreign_text_is_only_text() {
    let page = html::page(&crate::common::reports::rich());
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

/// In light and in dark; nothing overflows, overlaps, is too faint or out of the keyboard's reach.
#[test]
fn a_rich_report_is_drawn() {
    let path = file("rich", &and_then(&html::page(&crate::common::reports::rich()), MEASURE));
    let Some(light) = draw(&path, &[LIGHT, "--window-size=1200,900"]) else { return };
    light.assert_sound();
    light.assert_in_place("light");
    assert!(
        light.count("class=\"level\"") == 4 && light.count("class=\"tools\"") >= 1,
        "levels are drawn, rows have tools"
    );
    // Bandwidth 2, store kinds 6, scaling 2, widths 4, pages 1, samples 8.
    assert_eq!(light.data("charts"), "23");
    assert_eq!(light.count("<svg"), 23);
    assert_eq!(light.count(">touch-after-dontneed</text>"), 1, "names of bars that stand aslant");
    // Each of the 52 lines that are shown at first is a path of its own; whiskers, bars and dots come on top.
    assert!(light.count("<path") > 1500, "{} paths", light.count("<path"));
    assert!(light.count("nt wins above") >= 2);
    for level in ["L1", "L2", "L3", "memory"] {
        assert!(light.count(&format!(">{level}</text>")) >= 8, "{level}");
    }
    let drawn = light.dom.split("<svg").skip(1).filter_map(|svg| svg.split("</svg>").next());
    assert!(!drawn.into_iter().any(|svg| svg.contains("NaN")), "a coordinate could not be worked out");
    let dark = draw(&path, &[DARK, "--window-size=1200,900"]).unwrap();
    dark.assert_sound();
    dark.assert_in_place("dark");
    assert_ne!(light.data("background"), dark.data("background"));
}

#[test]
fn offsets_are_drawn() {
    let page = html::page(&crate::common::reports::offsets());
    let charts = page.split("id=\"data\"").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
    assert!(charts.len() < 60_000, "{} bytes of points", charts.len());
    let Some(drawn) = draw(&file("offsets", &page), &[LIGHT, "--window-size=1200,900"]) else { return };
    drawn.assert_sound();
    assert_eq!(drawn.data("charts"), "4");
    let mut svgs = drawn.dom.split("<svg").skip(1).filter_map(|svg| svg.split("</svg>").next());
    assert!(!svgs.any(|svg| svg.contains("NaN")), "a coordinate could not be worked out");
}

#[test]
fn kinds_are_drawn() {
    let page = html::page(&crate::common::reports::kinds());
    assert!(page.contains("\"[17, 31]\">22<") && page.contains(">1230 [410, never]<"), "break-evens have intervals");
    let Some(drawn) = draw(&file("kinds", &page), &[DARK, "--window-size=500,900"]) else { return };
    drawn.assert_sound();
    assert_eq!(drawn.data("charts"), "2");
    // A mark in its chart, a name aslant below the other.
    assert!(drawn.count("wc: 22") >= 1 && drawn.count("dma-heap-uncached") >= 3);
    let mut svgs = drawn.dom.split("<svg").skip(1).filter_map(|svg| svg.split("</svg>").next());
    assert!(!svgs.any(|svg| svg.contains("NaN")), "a coordinate could not be worked out");
}

/// Tooltips, legends, a new size and a printer: what a reader does.
#[test]
fn the_page_answers_its_reader() {
    let act = "<script>
        const wait = setInterval(() => {
          const root = document.documentElement;
          if (!root.dataset.ready) return;
          clearInterval(wait);
          document.querySelectorAll('details.part').forEach(part => { part.open = true; });
          const views = [...document.querySelectorAll('.chart')].map(box => echarts.getInstanceByDom(box));
          views.forEach(view => view.dispatchAction({ type: 'showTip', seriesIndex: 0, dataIndex: 1 }));
          views[0].dispatchAction({ type: 'legendToggleSelect', name: 'copy rep 512' });
          dispatchEvent(new Event('beforeprint'));
          root.dataset.paper = getComputedStyle(document.body).backgroundColor;
          root.dataset.picked = views[0].getOption().legend[0].selected['copy rep 512'];
          const tips = () => [...document.querySelectorAll('.chart > div:last-child')].map(tip => tip.innerText);
          setTimeout(() => { root.dataset.tips = tips().filter(tip => /GB\\/s| ns/.test(tip)).length; }, 500);
          views.forEach(view => view.dispatchAction({ type: 'showTip', seriesIndex: 0, dataIndex: 1 }));
        }, 50);</script>";
    let page = html::page(&crate::common::reports::rich()).replace("</body>", &format!("{act}</body>"));
    let Some(drawn) = draw(&file("asked", &page), &[DARK, "--window-size=1200,900"]) else { return };
    drawn.assert_sound();
    assert_eq!((drawn.data("tips"), drawn.data("picked")), ("23", "true"));
    assert_eq!(drawn.data("paper"), "rgb(255, 255, 255)");
}

/// Everything about latency on one page.
fn latencies() -> Report {
    use crate::common::simulated;
    let (latency, map, c2c, loaded) =
        (simulated::latency(), simulated::map(4), simulated::c2c(32, true), simulated::loaded(4));
    let mut addrmap = simulated::addrmap(Some(|address| address >> 6 & 7));
    addrmap.addrmap.extend(simulated::addrmap(None).addrmap);
    let findings = [&latency, &map, &c2c, &loaded, &addrmap].into_iter().flat_map(|report| report.findings.clone());
    Report {
        findings: findings.collect(),
        latency: membound_analyze::experiments::latency::chases::Latency {
            map: map.latency.map,
            ..latency.latency.clone()
        },
        handovers: c2c.handovers,
        loaded: loaded.loaded,
        addrmap: addrmap.addrmap,
        ..latency
    }
}

#[test]
fn latencies_are_drawn() {
    let path = file("latencies", &html::page(&latencies()));
    let Some(light) = draw(&path, &[LIGHT, "--window-size=1200,900"]) else { return };
    let dark = draw(&path, &[DARK, "--window-size=1200,900"]).unwrap();
    for drawn in [&light, &dark] {
        drawn.assert_sound();
        // The ladder, chains, the map, latency under load.
        assert_eq!(drawn.data("charts"), "4");
        for section in ["latency", "c2c", "loaded", "addrmap"] {
            assert_eq!(drawn.count(&format!("<section id=\"{section}\"")), 1, "{section}");
        }
        // All ordered pairs at both homes; those within the stronger cores and between the kinds are labelled.
        assert_eq!(drawn.count("class=\"heat\""), 2 * 32 * 31);
        assert!(drawn.count("(performance to efficiency)") == 2 * 16 * 16);
        assert!(
            drawn.dom.contains("address / 64 modulo 8") && drawn.dom.contains("thp: "),
            "a rule, and why there is none"
        );
        let mut svgs = drawn.dom.split("<svg").skip(1).filter_map(|svg| svg.split("</svg>").next());
        assert!(!svgs.any(|svg| svg.contains("NaN")), "a coordinate could not be worked out");
    }
    assert_ne!(light.data("background"), dark.data("background"));
    let Some(narrow) = draw_narrow("latencies-narrow", &html::page(&latencies()), 390) else { return };
    assert_eq!((narrow.data("ready"), narrow.data("errors"), narrow.data("charts")), ("1", "0", "4"));
    assert!(narrow.data("scroll-width").parse::<u32>().unwrap() <= 390);
}

/// One wide interval does not flatten the other lines: whiskers are cut at the frame.
#[test]
fn whiskers_do_not_decide_how_far_an_axis_reaches() {
    let mut report = crate::common::simulated::loaded(4);
    report.loaded.rows[3].latency_ns.as_mut().unwrap().ci95[1] = 88_888.0;
    let Some(drawn) = draw(&file("wide", &html::page(&report)), &[LIGHT, "--window-size=1200,900"]) else { return };
    drawn.assert_sound();
    let ticks = drawn.dom.split("<text").filter_map(|text| text.split('>').nth(1)?.split('<').next());
    let numbers: Vec<f64> = ticks.filter_map(|text| text.replace(',', "").parse().ok()).collect();
    assert!(numbers.len() > 6 && numbers.iter().all(|tick| *tick < 5000.0), "{numbers:?}");
}

#[test]
fn a_narrow_page_does_not_scroll_sideways() {
    let page = and_then(&html::page(&crate::common::reports::rich()), MEASURE);
    let Some(narrow) = draw_narrow("narrow", &page, 360) else { return };
    narrow.assert_in_place("360 px");
    assert_eq!((narrow.data("ready"), narrow.data("errors"), narrow.data("charts")), ("1", "0", "23"));
    assert!(narrow.data("scroll-width").parse::<u32>().unwrap() <= 360);
}

/// A browser's window can't be as narrow as a telephone, a frame can.
fn draw_narrow(name: &str, page: &str, width: u32) -> Option<Drawn> {
    let quoted = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame = format!(
        "<!DOCTYPE html><html><head></head><body style=\"margin:0\">\
         <iframe style=\"width:{width}px;height:800px;border:0\" srcdoc=\"{quoted}\"></iframe><script>\
         const frame = document.querySelector('iframe');\
         const wait = setInterval(() => {{\
           const root = frame.contentDocument.documentElement;\
           if (!root.dataset.ready) return;\
           clearInterval(wait);\
           Object.assign(document.documentElement.dataset, root.dataset);\
           frame.remove();\
         }}, 50);</script></body></html>"
    );
    let narrow = draw(&file(name, &frame), &[])?;
    assert_eq!(narrow.data("inner-width"), width.to_string());
    Some(narrow)
}

/// What a page says of its own boxes, once it is drawn: what stands out of the window, what lies upon its neighbour, text that is
/// too faint (WCAG AA), what the keyboard does not reach. All parts are opened first.
const MEASURE: &str = r#"
    document.querySelectorAll('details').forEach(part => { part.open = true; });
    redraw();
    const told = { over: [], upon: [], faint: [], deaf: [] };
    const name = e => e.tagName + '.' + e.className + ': ' + e.textContent.trim().slice(0, 30);
    const isSeen = e => e.getClientRects().length && getComputedStyle(e).visibility !== 'hidden';
    for (const e of document.querySelectorAll('body *')) {
      const box = e.getBoundingClientRect();
      if (!e.closest('.box table, .box pre, .chart') && isSeen(e) && (box.right > innerWidth + 1 || box.left < -1)) told.over.push(name(e));
      if (e.matches('.level, .costs > div, summary, .trust') && e.scrollWidth > e.clientWidth + 1) told.over.push(name(e));
    }
    for (const group of ['.levels > li', '.costs > div', 'nav > a', 'main > section', 'figure', '.tools > *', '.level > *']) {
      const boxes = [...document.querySelectorAll(group)].filter(isSeen).map(e => [e, e.getBoundingClientRect()]);
      boxes.forEach(([a, x], i) => boxes.slice(i + 1).forEach(([b, y]) => {
        const wide = Math.min(x.right, y.right) - Math.max(x.left, y.left), high = Math.min(x.bottom, y.bottom) - Math.max(x.top, y.top);
        if (wide > 1 && high > 1) told.upon.push(name(a) + ' and ' + name(b));
      }));
    }
    const channel = part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4;
    const parts = colour => {
      const numbers = colour.match(/[\d.]+/g).map(Number);
      return colour.startsWith('color') ? [...numbers.slice(0, 3), numbers[3] ?? 1] : [...numbers.slice(0, 3).map(n => n / 255), numbers[3] ?? 1];
    };
    const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
    const grounds = new Map([[null, [1, 1, 1, 1]]]);
    const ground = e => {
      if (!grounds.has(e)) {
        const own = parts(getComputedStyle(e).backgroundColor);
        grounds.set(e, own[3] > .9 ? own : ground(e.parentElement));
      }
      return grounds.get(e);
    };
    for (const e of document.querySelectorAll('body *')) {
      const own = [...e.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
      if (!own || e.closest('.chart, svg, script, noscript') || !isSeen(e)) continue;
      const style = getComputedStyle(e), [a, b] = [light(parts(style.color)), light(ground(e))].sort((x, y) => y - x);
      const isLarge = parseFloat(style.fontSize) >= 24 || parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700;
      if ((a + .05) / (b + .05) < (isLarge ? 3 : 4.5)) told.faint.push(((a + .05) / (b + .05)).toFixed(2) + ' ' + name(e));
    }
    for (const e of document.querySelectorAll('summary, button, input, a[href], .box')) if (isSeen(e) && e.tabIndex < 0) told.deaf.push(name(e));
    for (const [key, found] of Object.entries(told)) root.dataset[key] = found.length + (found.length ? ' ' + found.slice(0, 6).join(' | ') : '');
"#;

/// The page with more of a script, which runs once all is drawn.
fn and_then(page: &str, script: &str) -> String {
    let ready = "    root.dataset.ready = \"1\";";
    assert_eq!(page.matches(ready).count(), 1);
    page.replace(ready, &format!("{script}\n{ready}"))
}

/// Rows are found, sorted and taken along.
#[test]
fn rows_are_found_and_sorted() {
    let act = r#"
    document.querySelectorAll('details').forEach(part => { part.open = true; });
    const box = document.querySelector('.box.sortable'), find = box.previousElementSibling.querySelector('input');
    const rows = () => [...box.querySelectorAll('tbody tr')].filter(row => !row.hidden);
    root.dataset.all = rows().length;
    find.value = 'copy nt 1';
    find.dispatchEvent(new Event('input'));
    root.dataset.found = rows().length;
    root.dataset.wrong = rows().filter(row => !/copy/.test(row.textContent) || !/nt/.test(row.textContent)).length;
    const heads = [...box.querySelectorAll('thead th')], at = heads.findIndex(head => /GB\/s/.test(head.textContent));
    heads[at].querySelector('button').click();
    const speeds = rows().map(row => parseFloat(row.cells[at].textContent)).filter(Number.isFinite);
    root.dataset.sorted = speeds.every((speed, index) => !index || speeds[index - 1] <= speed) + ' ' + heads[at].getAttribute('aria-sort');
    const kept = [];
    URL.createObjectURL = blob => { kept.push(blob.size + ' ' + blob.type); return '#'; };
    URL.revokeObjectURL = () => {};
    box.previousElementSibling.querySelectorAll('button').forEach(button => button.click());
    root.dataset.kept = kept.join(', ');
"#;
    let page = and_then(&html::page(&crate::common::reports::rich()), act);
    let Some(drawn) = draw(&file("found", &page), &[LIGHT, "--window-size=1280,900"]) else { return };
    let number = |name: &str| drawn.data(name).parse::<usize>().unwrap();
    assert!(number("found") > 0 && number("found") < number("all"), "{} of {}", number("found"), number("all"));
    assert_eq!((number("wrong"), drawn.data("sorted")), (0, "true ascending"));
    assert!(
        drawn.data("kept").contains("text/csv") && drawn.data("kept").contains("application/json"),
        "{}",
        drawn.data("kept")
    );
}

/// On paper the first screen and the first part remain.
#[test]
fn few_pages_are_printed() {
    let path = file("printed", &html::page(&crate::common::reports::rich()));
    let pdf = path.with_extension("pdf");
    // The last run's stays for a look, too.
    let _ = std::fs::remove_file(&pdf);
    for browser in BROWSERS {
        let profile = tempfile::tempdir().unwrap();
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"])
            .args(["--virtual-time-budget=20000", "--no-pdf-header-footer"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--print-to-pdf={}", pdf.display()))
            .arg(format!("file://{}", path.display()))
            .output();
        let Ok(output) = output else { continue };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{browser}: {}: {said}", output.status);
        let bytes = std::fs::read(&pdf).unwrap_or_else(|fault| panic!("{browser}: {fault}: {said}"));
        let pages = String::from_utf8_lossy(&bytes).matches("/Type /Page\n").count();
        assert!((1..=6).contains(&pages), "{pages} pages");
        return;
    }
    skip(format!("no browser found ({BROWSERS:?})"));
}

#[test]
fn little_or_nothing_is_shown_without_errors() {
    let mut no_best = crate::common::reports::rich();
    no_best.levels.all.iter_mut().for_each(|level| level.best.clear());
    let no_best = Report { rows: Vec::new(), pages: Vec::new(), ..no_best };
    let cases = [
        ("empty", crate::common::reports::empty(), "0"),
        ("single", crate::common::reports::single(), "0"),
        ("poor", crate::common::reports::unavailable(), "0"),
        ("rowless", no_best, "0"),
    ];
    for (name, report, charts) in cases {
        let Some(drawn) = draw(&file(name, &html::page(&report)), &[]) else { return };
        drawn.assert_sound();
        assert_eq!(drawn.data("charts"), charts, "{name}");
    }
}
