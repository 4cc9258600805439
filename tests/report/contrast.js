// The contrast (WCAG) of the faintest text that is shown, and its element: letters against the background behind them.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = color => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = value => value <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const color = rgb(getComputedStyle(node).backgroundColor);
      if (color[3] === 255) return color;
    }
    throw new Error("nothing lies behind the page");
  };
  let worst = [99, ""];
  for (const node of document.querySelectorAll("td, th, button, dt, dd, h1, h2, p, li, summary, figcaption *, b, text")) {
    if (!node.textContent.trim() || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const letters = light(rgb(node.namespaceURI.endsWith("svg") ? style.fill : style.color));
    const ground = light(behind(node));
    const contrast = (Math.max(letters, ground) + .05) / (Math.min(letters, ground) + .05);
    if (contrast < worst[0]) worst = [contrast, node.outerHTML.slice(0, 120)];
  }
  return worst;
})()
