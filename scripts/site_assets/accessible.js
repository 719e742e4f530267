// The theme puts wide tables into boxes and buttons on code while a page is open: let keys scroll the boxes, and do not announce
// each button as a landmark.
new MutationObserver(() => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) box.tabIndex = 0;
  for (const buttons of document.querySelectorAll(".md-code__nav:not([role])")) buttons.setAttribute("role", "none");
}).observe(document.documentElement, { childList: true, subtree: true });
