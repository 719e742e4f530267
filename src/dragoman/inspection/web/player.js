// A film: a slider over its pictures, and a button that plays them.

const FRAME = 900; // milliseconds

// Plays from where the slider is, or from the beginning where it is at its end. draw: shows what the slider says. Returns
// a function that stops.
export function setUpPlayer(button, slider, draw) {
  let timer = 0;
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    button.setAttribute("aria-pressed", "false");
  };
  button.addEventListener("click", () => {
    if (timer) return stop();
    if (slider.value === slider.max) slider.value = 0;
    draw();
    button.setAttribute("aria-pressed", "true");
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      draw();
      if (slider.value === slider.max) stop();
    }, FRAME);
  });
  slider.addEventListener("input", () => {
    stop();
    draw();
  });
  return stop;
}
