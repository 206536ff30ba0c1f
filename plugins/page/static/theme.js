// Light or dark as Airflow's own interface is, where this page stands inside it; as the system is, where it does not.

export function follow() {
  let outer = null;
  try {
    if (window.parent !== window) outer = window.parent.document.documentElement;
  } catch {
    outer = null; // a page of another origin
  }
  const root = document.documentElement;
  const apply = () => {
    const told = outer && ["dark", "light"].find((name) => outer.classList.contains(name) || outer.dataset.theme === name);
    if (told) root.dataset.theme = told;
    else delete root.dataset.theme;
  };
  apply();
  if (outer) new MutationObserver(apply).observe(outer, { attributes: true, attributeFilter: ["class", "data-theme", "style"] });
}
