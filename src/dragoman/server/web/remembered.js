// Before anything is drawn: the theme that the reader has chosen. Nothing else but their language, and a glossary if
// they ask for it, is ever stored.
"use strict";
{
  const dark = document.getElementById("dark");
  const media = { light: "not all", dark: "all" }[localStorage.getItem("theme")];
  if (media) dark.media = media;
}
