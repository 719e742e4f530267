// What the browser keeps for these pages. Where it blocks site data or has no room, nothing is kept and nothing fails.

const AREAS = { local: () => localStorage, session: () => sessionStorage }; // session: until the tab is closed

// The text that is kept under a key; null: none.
export function read(key, area = "local") {
  try {
    return AREAS[area]().getItem(key);
  } catch {
    return null;
  }
}

// Keeps a text; "": none. Returns whether it is kept. What does not fit takes what was there before with it.
export function keep(key, text, area = "local") {
  try {
    AREAS[area]().removeItem(key);
    if (text) AREAS[area]().setItem(key, text);
    return true;
  } catch {
    return false;
  }
}

export const allowed = () => keep("probe", "1") && keep("probe", "");
