"use strict";
// Whole slides: Deep Zoom tiles, a map over them, outlines and detections. A slide's map and places come as a script of
// their own, since a page that lies on disk may load scripts and pictures, and nothing else.

(() => {
  const frame = document.getElementById("viewer");
  if (!frame) return;
  const find = (id) => document.getElementById(id);
  const entries = JSON.parse(find("slide-data").textContent);
  if (typeof OpenSeadragon === "undefined") {
    find("about").textContent = "The viewer is not in this installation.";
    return;
  }
  // Viridis, at equal steps: even to every eye, and dark to light.
  const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const UNMAPPED = 255;
  const SVG = "http://www.w3.org/2000/svg";
  const loaded = new Map();
  let waiting = null;
  let shown = null;
  let layers = { map: null, marks: null };

  const viewer = OpenSeadragon({
    element: find("osd"), drawer: "canvas", showNavigationControl: false, showNavigator: true,
    navigatorPosition: "TOP_RIGHT", navigatorSizeRatio: 0.14, maxZoomPixelRatio: 6, visibilityRatio: 0.4,
    minZoomImageRatio: 0.6, animationTime: matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 0.5,
    overlayPreserveContentDirection: false,  // a slide that is mirrored (key f) has a mirrored map
    gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true, scrollToZoom: true },
  });
  window.histoViewer = viewer;

  function color(fraction) {
    const place = Math.min(Math.max(fraction, 0), 1) * (STOPS.length - 1);
    const low = Math.min(Math.floor(place), STOPS.length - 2);
    return STOPS[low].map((value, i) => Math.round(value + (STOPS[low + 1][i] - value) * (place - low)));
  }

  // Each slide's script calls this.
  window.histoSlide = (slideId, content) => {
    loaded.set(slideId, content);
    if (waiting === slideId) open(slideId);
  };

  function ask(slideId) {
    waiting = slideId;
    if (loaded.has(slideId)) { open(slideId); return; }
    const entry = entries.find((each) => each.slide_id === slideId);
    const script = document.createElement("script");
    script.src = entry.script;
    script.onerror = () => { find("about").textContent = `${entry.script} is missing`; };
    document.body.append(script);
  }

  function open(slideId) {
    waiting = null;
    shown = { entry: entries.find((each) => each.slide_id === slideId), content: loaded.get(slideId) };
    const { tiles } = shown.content;
    find("slide").value = slideId;
    viewer.clearOverlays();
    layers = { map: null, marks: null };
    viewer.open({
      Image: {
        xmlns: "http://schemas.microsoft.com/deepzoom/2008", Url: tiles.url, Format: tiles.format, Overlap: "0",
        TileSize: String(tiles.tile_px), Size: { Width: String(tiles.width), Height: String(tiles.height) },
      },
    });
    find("about").textContent = shown.entry.about;
    listPlaces();
  }

  const width = () => shown.content.width_um;
  const inImage = (x, y, w, h) => new OpenSeadragon.Rect(x / width(), y / width(), w / width(), h / width());

  function decode(text) {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  }

  function currentMap() {
    const labels = find("label");
    const name = find("model").value + (labels ? `:${labels.value}` : "");
    const maps = shown.content.maps;
    return maps[name] || maps[find("model").value] || null;
  }

  function drawMap() {
    const { grid } = shown.content;
    if (layers.map) viewer.removeOverlay(layers.map);
    layers.map = null;
    const text = currentMap();
    if (!text) return;
    const canvas = document.createElement("canvas");
    canvas.className = "map";
    canvas.width = grid.columns;
    canvas.height = grid.rows;
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(grid.columns, grid.rows);
    const threshold = Number(find("threshold").value) / 100;
    decode(text).forEach((value, i) => {
      const fraction = value / 254;
      if (value === UNMAPPED || fraction < threshold) return;
      pixels.data.set([...color(fraction), 255], 4 * i);
    });
    context.putImageData(pixels, 0, 0);
    canvas.style.opacity = Number(find("opacity").value) / 100;
    viewer.addOverlay({ element: canvas, location: inImage(0, 0, grid.columns * grid.stride_um, grid.rows * grid.stride_um) });
    layers.map = canvas;
  }

  function shape(name, kind, attributes) {
    const element = document.createElementNS(SVG, name);
    element.setAttribute("class", kind);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    return element;
  }

  function drawMarks() {
    if (layers.marks) viewer.removeOverlay(layers.marks);
    const { content } = shown;
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("class", "marks");
    svg.setAttribute("viewBox", `0 0 ${content.width_um} ${content.height_um}`);
    svg.setAttribute("preserveAspectRatio", "none");
    if (find("outlines").checked) {
      for (const outline of content.outlines) {
        for (const kind of ["halo", "outline"]) svg.append(shape("polygon", kind, { points: outline.points }));
      }
    }
    if (find("detections").checked) {
      for (const hit of hits()) {
        for (const kind of ["halo", "hit"]) {
          svg.append(shape("circle", kind, { cx: hit.x, cy: hit.y, r: 0.3 * content.radius_um }));
        }
      }
    }
    viewer.addOverlay({ element: svg, location: inImage(0, 0, content.width_um, content.height_um) });
    layers.marks = svg;
  }

  // The same threshold holds for cells and for detections.
  function hits() {
    const all = shown.content.detections[find("model").value] || [];
    return all.filter((hit) => hit.score >= Number(find("threshold").value) / 100);
  }

  function goTo(x, y, side) {
    viewer.viewport.fitBounds(inImage(x - side / 2, y - side / 2, side, side));
  }

  function listPlaces() {
    const places = find("places");
    places.replaceChildren();
    const add = (text, x, y, side) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.addEventListener("click", () => goTo(x, y, side));
      places.append(button);
    };
    shown.content.outlines.forEach((outline, i) => add(`${outline.name} ${i + 1}`, outline.x, outline.y, outline.side * 1.6));
    hits().slice(0, 12).forEach((hit, i) => add(`Detection ${i + 1}: ${hit.score.toFixed(2)}`, hit.x, hit.y, shown.content.radius_um * 6));
  }

  function scale() {
    if (!shown || !viewer.world.getItemCount()) return;
    const umPerPx = width() / (viewer.viewport.getContainerSize().x * viewer.viewport.getZoom(true));
    const wanted = umPerPx * 130;
    const power = 10 ** Math.floor(Math.log10(wanted));
    const length = [5, 2, 1].map((factor) => factor * power).find((each) => each <= wanted) || power;
    const bar = frame.querySelector(".scale");
    bar.querySelector("i").style.width = `${length / umPerPx}px`;
    bar.querySelector("span").textContent = length >= 1000 ? `${length / 1000} mm` : `${length} µm`;
  }

  viewer.addHandler("open", () => { drawMap(); drawMarks(); scale(); });
  viewer.addHandler("update-viewport", scale);
  find("slide").addEventListener("change", (event) => { location.hash = `slide=${encodeURIComponent(event.target.value)}`; });
  find("model").addEventListener("change", () => { drawMap(); drawMarks(); listPlaces(); });
  if (find("label")) find("label").addEventListener("change", drawMap);
  find("opacity").addEventListener("input", (event) => { if (layers.map) layers.map.style.opacity = event.target.value / 100; });
  find("threshold").addEventListener("input", (event) => {
    find("threshold-value").textContent = (event.target.value / 100).toFixed(2);
    drawMap();
    drawMarks();
    listPlaces();
  });
  for (const id of ["outlines", "detections"]) find(id).addEventListener("change", drawMarks);
  find("zoom-in").addEventListener("click", () => viewer.viewport.zoomBy(1.6));
  find("zoom-out").addEventListener("click", () => viewer.viewport.zoomBy(1 / 1.6));
  find("zoom-home").addEventListener("click", () => viewer.viewport.goHome());
  frame.querySelector(".legend i").style.background =
    `linear-gradient(to right, ${STOPS.map((stop) => `rgb(${stop.join(",")})`).join(",")})`;

  function follow() {
    const asked = decodeURIComponent((location.hash.match(/^#slide=(.*)$/) || [])[1] || "");
    if (!entries.some((each) => each.slide_id === asked)) return false;
    if (!shown || shown.entry.slide_id !== asked) ask(asked);
    frame.scrollIntoView({ block: "start" });
    return true;
  }
  window.addEventListener("hashchange", follow);
  if (!follow() && entries.length) ask(entries[0].slide_id);
})();
