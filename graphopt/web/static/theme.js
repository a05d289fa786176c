const DARK = matchMedia("(prefers-color-scheme: dark)");

/** Dark, light, or as the system has it: what the user chose last, where the browser keeps it. */
function theme() {
  try {
    return localStorage.getItem("graphopt-theme") || "auto";
  } catch {
    return "auto";
  }
}

function applyTheme(name) {
  const isDark = name === "dark" || (name === "auto" && DARK.matches);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  document.dispatchEvent(new Event("themechange"));
}

/** The button that goes from one theme to the next. */
function themeButton() {
  const names = ["auto", "light", "dark"];
  const signs = { auto: "◐", light: "☀", dark: "☾" };
  const button = h("button", { type: "button", class: "quiet icon", id: "theme" });
  const show = () => {
    button.textContent = signs[theme()];
    button.setAttribute("aria-label", `Theme: ${theme()}. Change it`);
    button.dataset.tip = `Theme: ${theme()}`;
  };
  button.addEventListener("click", () => {
    const next = names[(names.indexOf(theme()) + 1) % names.length];
    try {
      localStorage.setItem("graphopt-theme", next);
    } catch {
      /* it lasts as long as the page */
    }
    applyTheme(next);
    show();
  });
  DARK.addEventListener("change", () => applyTheme(theme()));
  show();
  return button;
}

/** The colours of the theme, for canvases. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  return new Proxy({}, { get: (_, name) => style.getPropertyValue(`--${name}`).trim() });
}

applyTheme(theme());
