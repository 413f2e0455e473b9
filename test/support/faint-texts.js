// Evaluated in a page: texts whose contrast with what is behind them is below 4.5 (WCAG AA).
(() => {
  const rgb = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = (color) => {
    const [r, g, b] = color.map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    if (element === null) return [255, 255, 255];
    const [r, g, b, a = 1] = rgb(getComputedStyle(element).backgroundColor);
    return a === 0 ? ground(element.parentElement) : [r, g, b];
  };
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== '');
  return [...document.querySelectorAll('body *')]
    .filter((element) => element.checkVisibility() && hasText(element))
    .flatMap((element) => {
      const ink = luminance(rgb(getComputedStyle(element).color).slice(0, 3));
      const paper = luminance(ground(element));
      const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
      return contrast < 4.5 ? [`${element.tagName} "${element.textContent}": ${contrast.toFixed(2)}`] : [];
    });
})();
