function showNode(group) {
  document.querySelectorAll("#graph .chosen").forEach((old) => old.classList.remove("chosen"));
  group.classList.add("chosen");
  const node = page.nodes[Number(group.dataset.node)];
  document.getElementById("node-name").textContent = node.name;
  const body = document.getElementById("node-facts");
  body.textContent = "";
  for (const row of node.facts) {
    const line = body.insertRow();
    for (const cell of row) line.insertCell().textContent = cell;
  }
}
function setUpGraph(graph) {
  for (const group of graph.querySelectorAll(".node"))
    for (const event of ["mouseenter", "focus", "click"])
      group.addEventListener(event, () => showNode(group));
  for (const button of document.querySelectorAll("input[name=by]"))
    button.addEventListener("change", () => {
      graph.dataset.by = button.value;
      for (const legend of document.querySelectorAll(".by"))
        legend.hidden = legend.dataset.legend !== button.value;
    });
  const {width, height} = graph.viewBox.baseVal;
  const room = graph.parentElement.clientWidth - 20;
  let scale = Math.max(0.55, Math.min(1, room / width));
  const resize = () => {
    graph.setAttribute("width", Math.round(width * scale));
    graph.setAttribute("height", Math.round(height * scale));
  };
  resize();
  for (const button of document.querySelectorAll("[data-graph]"))
    button.addEventListener("click", () => {
      scale = Math.min(3, Math.max(0.15, scale * (button.dataset.graph === "1" ? 1.25 : 0.8)));
      resize();
    });
  showNode(graph.querySelector(".node"));
}
const graphDrawing = document.getElementById("graph");
if (graphDrawing) setUpGraph(graphDrawing);
