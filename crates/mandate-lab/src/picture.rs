//! Pictures of results: panels of lines or bars, as SVG and as PNG.

use std::error::Error;
use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;

/// Why a picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the picture could not be drawn: {0}")]
pub struct NotDrawn(String);

/// How points are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlotKind {
    /// Joined.
    Line,
    /// Joined by a thin line: what should be.
    Expected,
    /// Each by itself.
    Points,
    /// A bar for each; x is the place of a name.
    Bars,
}

/// Points of one kind.
#[derive(Clone, Debug)]
pub struct Series {
    /// What they are.
    pub name: String,
    /// How they are shown.
    pub kind: PlotKind,
    /// Which of the colours; what belongs together has one.
    pub colour: usize,
    /// The points.
    pub points: Vec<(f64, f64)>,
}

/// A diagram.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// Below it.
    pub x: String,
    /// Beside it.
    pub y: String,
    /// Names of the places 0, 1 and so on; if there are none, x is a number.
    pub names: Vec<String>,
    /// What is in it.
    pub series: Vec<Series>,
}

const WIDTH: u32 = 720;
const HEIGHT: u32 = 420;

const COLOURS: [RGBColor; 7] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 96, 77),
    RGBColor(44, 140, 60),
    RGBColor(148, 103, 189),
    RGBColor(190, 150, 20),
    RGBColor(90, 90, 90),
    RGBColor(23, 170, 190),
];

fn size(panels: &[Panel]) -> (u32, u32) {
    let columns = panels.len().clamp(1, 2) as u32;
    let rows = panels.len().div_ceil(2).max(1) as u32;
    (columns * WIDTH, rows * HEIGHT)
}

/// As an SVG document.
pub fn svg(panels: &[Panel]) -> Result<String, NotDrawn> {
    let mut document = String::new();
    let root = SVGBackend::with_string(&mut document, size(panels)).into_drawing_area();
    draw(&root, panels).map_err(|error| NotDrawn(error.to_string()))?;
    drop(root);
    Ok(document)
}

/// As a PNG file.
pub fn png(panels: &[Panel]) -> Result<Vec<u8>, NotDrawn> {
    let (width, height) = size(panels);
    let mut pixels = vec![255; (width * height * 3) as usize];
    let root = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
    draw(&root, panels).map_err(|error| NotDrawn(error.to_string()))?;
    drop(root);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
    written.map_err(|error| NotDrawn(error.to_string()))?;
    Ok(file)
}

/// Makes a font known that comes along; plots need one, and a machine may have none.
pub(crate) fn font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let bytes = epaint_default_fonts::UBUNTU_LIGHT;
        let known = plotters::style::register_font("sans-serif", FontStyle::Normal, bytes);
        assert!(known.is_ok(), "the font that comes along is one");
    });
}

fn draw<B: DrawingBackend>(
    root: &DrawingArea<B, Shift>,
    panels: &[Panel],
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    font();
    root.fill(&WHITE)?;
    let columns = panels.len().clamp(1, 2);
    let areas = root.split_evenly((panels.len().div_ceil(2).max(1), columns));
    for (panel, area) in panels.iter().zip(&areas) {
        draw_panel(panel, area)?;
    }
    root.present()?;
    Ok(())
}

fn draw_panel<B: DrawingBackend>(
    panel: &Panel,
    area: &DrawingArea<B, Shift>,
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let highest = points().map(|(_, y)| *y).fold(0.0, f64::max).max(1e-9) * 1.25;
    let (least, most) = match panel.names.len() {
        0 => {
            let least = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min).min(0.0);
            let most = points().map(|(x, _)| *x).fold(least + 1e-9, f64::max);
            (least, most + (most - least) * 0.02)
        }
        names => (-0.5, names as f64 - 0.5),
    };
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(least..most, 0.0..highest)?;
    let name = |x: &f64| match panel.names.is_empty() {
        true => format!("{:.3}", x).trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => {
            panel.names.get(x.round() as usize).filter(|_| *x > -0.4).cloned().unwrap_or_default()
        }
    };
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(&panel.x).y_desc(&panel.y).max_light_lines(0).x_label_formatter(&name);
    if !panel.names.is_empty() {
        mesh.disable_x_mesh().x_labels(panel.names.len() + 1);
    }
    mesh.draw()?;
    let bars = panel.series.iter().filter(|series| series.kind == PlotKind::Bars).count() as f64;
    let mut bar = 0.0;
    for series in &panel.series {
        let colour = COLOURS[series.colour % COLOURS.len()];
        let points = series.points.iter().copied();
        let drawn = match series.kind {
            PlotKind::Line => {
                chart.draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            }
            PlotKind::Expected => chart.draw_series(LineSeries::new(points, colour.mix(0.5)))?,
            PlotKind::Points => {
                chart.draw_series(points.map(|point| Circle::new(point, 5, colour.filled())))?
            }
            PlotKind::Bars => {
                let width = 0.8 / bars;
                let left = -0.4 + bar * width;
                bar += 1.0;
                chart.draw_series(points.map(|(x, y)| {
                    let corners = [(x + left, 0.0), (x + left + width * 0.92, y)];
                    Rectangle::new(corners, colour.mix(0.8).filled())
                }))?
            }
        };
        drawn.label(&series.name).legend(move |(x, y)| {
            let height = if series.kind == PlotKind::Expected { 1 } else { 4 };
            Rectangle::new([(x, y - height), (x + 12, y + height)], colour.filled())
        });
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_picture_hold_what_they_are_given() {
        let series = |name: &str, kind| Series {
            name: name.into(),
            kind,
            colour: 0,
            points: vec![(0.0, 3.0), (1.0, 5.0)],
        };
        let panel = Panel {
            title: "Latency".into(),
            x: "server".into(),
            y: "ms".into(),
            names: vec!["p1".into(), "p2".into()],
            series: vec![
                series("measured", PlotKind::Bars),
                series("arithmetic", PlotKind::Points),
            ],
        };
        let document = svg(std::slice::from_ref(&panel)).unwrap();
        for text in ["Latency", "server", "p2", "measured", "arithmetic"] {
            assert!(document.contains(text), "{text}");
        }
        let file = png(&[panel.clone(), panel]).unwrap();
        let reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        assert_eq!((reader.info().width, reader.info().height), (2 * WIDTH, HEIGHT));
    }
}
