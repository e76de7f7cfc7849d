// Settings that are stored in the browser.

/** Stores the value of a checkbox or list; `apply` is called with it now and whenever it changes. */
export function remember(key, control, apply) {
  const isBox = control.type === "checkbox";
  const value = () => (isBox ? (control.checked ? "on" : "off") : control.value);
  const kept = localStorage.getItem(key);
  if (kept !== null && isBox) control.checked = kept === "on";
  else if (kept !== null && [...control.options].some((one) => one.value === kept)) control.value = kept;
  control.addEventListener("change", () => {
    localStorage.setItem(key, value());
    apply(value());
  });
  apply(value());
}
