// Before anything is drawn: the theme that the reader has chosen. A module, such as storage.js, would come too late.
"use strict";
{
  let theme = null;
  try {
    theme = localStorage.getItem("theme");
  } catch {
    // Site data is blocked.
  }
  const media = { light: "not all", dark: "all" }[theme];
  if (media) document.getElementById("dark").media = media;
}
