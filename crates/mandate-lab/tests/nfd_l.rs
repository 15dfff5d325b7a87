//! The NFD-L experiment at the paper's lengths: a few seconds of computing.

use mandate_lab::nfd_l::{NfdLSettings, plot, report, run};

#[test]
fn the_papers_evaluation_comes_out_as_it_should() {
    let settings = NfdLSettings::default();
    let mut steps = 0;
    let results = run(settings, || steps += 1);
    assert_eq!(steps, settings.steps());
    for claim in report::claims(&results) {
        assert!(claim.holds, "{}: {}", claim.claim, claim.figures);
    }
    // Tuned to the same price, so that what is left to compare is accuracy.
    let calm = &results.comparison.calm;
    for row in calm {
        assert!((row.detection_mean - calm[0].detection_mean).abs() < 0.001, "{row:?}");
    }
    let page = report::markdown(&results);
    assert!(page.contains("735.0 / 741.5 / 754.2"), "the paper's figures stand beside ours");
    for bursty in &results.comparison.bursts {
        assert!(page.contains(&format!("{:.3}", bursty.mistakes_per_hour)), "{bursty:?}");
    }
    assert!(plot::svg(&results).unwrap().starts_with("<svg"));
}
