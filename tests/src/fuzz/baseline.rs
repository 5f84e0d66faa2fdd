//! Any bytes as a baseline: what is read can be written and read again, and judging an image against any baseline gives
//! a report in every form.

use reorder::gate::place::{Source, locate};
use reorder::gate::render::ExportFormat;
use reorder::gate::{Baseline, Comparison, GateReport, Limits, OtherTools, Outcome, judge};
use reorder_layout::memory;

/// A larger text takes more pages than a run should count.
const MAX_TEXT: u64 = 64 << 20;

pub(super) fn check(bytes: &[u8]) {
    let Ok(then) = Baseline::parse(bytes) else { return };
    let text = then.write();
    assert_eq!(Baseline::parse(text.as_bytes()).expect("a written baseline is sound").write(), text);
    if then.startup.functions.iter().map(|function| function.size).sum::<u64>() > MAX_TEXT {
        return;
    }
    let mut now = then.clone();
    now.figures.truncate(then.figures.len() / 2);
    now.startup.functions.iter_mut().for_each(|function| function.name.push('x'));
    let limits = Limits::default();
    let models = memory::default_for_elf();
    let judged = judge(&Comparison { now: &now, then: Some(&then), limits: &limits, models: &models });
    let Ok((mut checks, explanations)) = judged else { return };
    locate(&mut checks, None, Some(Source { path: "baseline.json".as_ref(), text: &text }));
    let findings = checks.iter().filter(|check| check.verdict.is_finding()).count() as u64;
    let report = GateReport {
        reorder: "",
        image: now.image,
        baseline: Some("baseline.json".to_owned()),
        configuration: None,
        outcome: Outcome::Fail,
        findings,
        checks,
        explanations,
        other_tools: OtherTools::between(&["an older linker".to_owned()], &now.tools),
        remarks: Vec::new(),
        shows_all: true,
    };
    for form in [
        ExportFormat::Text,
        ExportFormat::Json,
        ExportFormat::Markdown,
        ExportFormat::Github,
        ExportFormat::Sarif,
        ExportFormat::Junit,
    ] {
        let text = form.render(&report).expect("every report has every form");
        assert!(form != ExportFormat::Markdown || text.len() <= 64 << 10);
    }
}
