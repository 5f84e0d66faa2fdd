//! JUnit XML, for lists of tests: a suite for each scenario and one for the image, a case for each check.
//!
//! In: the report. Out: XML as Jenkins and GitLab read it, without times. Findings are failures whatever the exit status is;
//! figures without a limit are skipped. Values are properties of the suite, because cases have no properties.

use std::io::Write;

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use crate::gate::check::{Check, Verdict};
use crate::gate::metric::Metric;
use crate::gate::report::{GateReport, Outcome};
use reorder_base::error::{Error, Result};
use reorder_report::visible::visible;

/// Functions that a failure names.
const SHOWN_FUNCTIONS: usize = 24;

/// The report as JUnit XML.
///
/// # Errors
/// Only when writing to memory fails.
pub(super) fn render(report: &GateReport) -> Result<String> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    let failed = |error: String| Error::usage(format!("cannot express the report as JUnit XML: {error}"));
    write(&mut writer, report).map_err(|error| failed(error.to_string()))?;
    let mut bytes = writer.into_inner();
    bytes.push(b'\n');
    String::from_utf8(bytes).map_err(|error| failed(error.to_string()))
}

/// Checks by suite: sums over the scenarios, the image, and each scenario.
fn suites(report: &GateReport) -> Vec<(String, Vec<&Check>)> {
    let mut checks: Vec<&Check> = report.checks.iter().collect();
    checks.sort_by_key(|check| (check.key.scenario.as_ref(), check.key.metric != Metric::Faults));
    let mut suites: Vec<(String, Vec<&Check>)> = Vec::new();
    for check in checks {
        let name = match (&check.key.scenario, check.key.metric) {
            (Some(scenario), _) => format!("scenario {}", visible(scenario)),
            (None, Metric::Faults) => "all scenarios".to_owned(),
            (None, _) => "image".to_owned(),
        };
        match suites.last_mut() {
            Some((last, checks)) if *last == name => checks.push(check),
            _ => suites.push((name, vec![check])),
        }
    }
    suites
}

fn write<W: Write>(writer: &mut Writer<W>, report: &GateReport) -> std::io::Result<()> {
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let failures = report.checks.iter().filter(|check| is_failure(report, check)).count();
    writer
        .create_element("testsuites")
        .with_attribute(("name", "reorder gate"))
        .with_attribute(("tests", report.checks.len().to_string().as_str()))
        .with_attribute(("failures", failures.to_string().as_str()))
        .with_attribute(("errors", "0"))
        .write_inner_content(|writer| {
            suites(report).iter().try_for_each(|(name, checks)| write_suite(writer, report, name, checks))
        })?;
    Ok(())
}

fn write_suite<W: Write>(
    writer: &mut Writer<W>,
    report: &GateReport,
    name: &str,
    checks: &[&Check],
) -> std::io::Result<()> {
    let count = |is: &dyn Fn(&Check) -> bool| checks.iter().filter(|check| is(check)).count().to_string();
    writer
        .create_element("testsuite")
        .with_attribute(("name", name))
        .with_attribute(("tests", checks.len().to_string().as_str()))
        .with_attribute(("failures", count(&|check| is_failure(report, check)).as_str()))
        .with_attribute(("errors", "0"))
        .with_attribute(("skipped", count(&|check| skipped(check).is_some()).as_str()))
        .write_inner_content(|writer| {
            writer
                .create_element("properties")
                .write_inner_content(|writer| write_properties(writer, report, checks))?;
            checks.iter().try_for_each(|check| write_case(writer, report, check))
        })?;
    Ok(())
}

fn write_properties<W: Write>(
    writer: &mut Writer<W>,
    report: &GateReport,
    checks: &[&Check],
) -> std::io::Result<()> {
    let mut write = |name: &str, value: &str| -> std::io::Result<()> {
        let element = writer.create_element("property");
        element.with_attribute(("name", name)).with_attribute(("value", value)).write_empty()?;
        Ok(())
    };
    write("reorder", report.reorder)?;
    write("image", &visible(&report.image))?;
    if let Some(baseline) = &report.baseline {
        write("baseline", &visible(baseline))?;
    }
    for check in checks {
        let path = check.key.path();
        let path = visible(&path);
        let shown = |value: Option<f64>| value.map(|value| value.to_string());
        let limit = check.limit.as_ref().map(|limit| format!("{} by {}", limit.text, limit.source));
        let values = [
            ("baseline", shown(check.baseline)),
            ("now", shown(check.current)),
            ("lower-bound", shown(check.lower_bound)),
            ("limit", limit),
            ("worst", shown(check.worst)),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                write(&format!("{path}.{name}"), &visible(&value))?;
            }
        }
    }
    Ok(())
}

fn write_case<W: Write>(writer: &mut Writer<W>, report: &GateReport, check: &Check) -> std::io::Result<()> {
    let path = check.key.path();
    let title = check.title();
    let class = format!("reorder.gate.{}", visible(&path));
    let case = writer
        .create_element("testcase")
        .with_attribute(("name", title.as_str()))
        .with_attribute(("classname", class.as_str()));
    if is_failure(report, check) {
        let sentence = visible(&check.sentence()).into_owned();
        let because = super::because(report, check, SHOWN_FUNCTIONS);
        let lines: Vec<_> = std::iter::once(sentence.clone()).chain(because).collect();
        case.write_inner_content(|writer| {
            writer
                .create_element("failure")
                .with_attribute(("type", check.verdict.name()))
                .with_attribute(("message", sentence.as_str()))
                .write_text_content(BytesText::new(&lines.join("\n")))?;
            Ok(())
        })?;
    } else if let Some(reason) = skipped(check) {
        case.write_inner_content(|writer| {
            writer.create_element("skipped").with_attribute(("message", reason)).write_empty()?;
            Ok(())
        })?;
    } else {
        case.write_empty()?;
    }
    Ok(())
}

/// A baseline that was just written fails nothing.
fn is_failure(report: &GateReport, check: &Check) -> bool {
    report.outcome != Outcome::Updated && check.verdict.is_finding()
}

fn skipped(check: &Check) -> Option<&'static str> {
    match check.verdict {
        Verdict::New => Some("the baseline does not have it"),
        Verdict::Unlimited => Some("it has no limit"),
        Verdict::Pass | Verdict::Fail | Verdict::Gone => None,
    }
}
