// The only tooltip of the page. It is rebuilt only when its subject changes, moves without layout, and ignores the pointer,
// so it does not flicker.

const tooltip = {
  box: byId("tooltip"),
  about: null,

  show(about, x, y, build) {
    if (this.about !== about) {
      this.about = about;
      this.box.replaceChildren(...build());
      this.box.hidden = false;
      this.width = this.box.offsetWidth;
      this.height = this.box.offsetHeight;
    }
    const room = 14;
    const { clientWidth, clientHeight } = document.documentElement;
    const left = x + room + this.width > clientWidth ? x - room - this.width : x + room;
    const top = y + room + this.height > clientHeight ? y - room - this.height : y + room;
    this.box.style.transform =
      `translate(${Math.round(Math.max(4, left))}px, ${Math.round(Math.max(4, top))}px)`;
  },

  hide() {
    this.about = null;
    this.box.hidden = true;
  },
};

addEventListener("scroll", () => tooltip.hide(), { passive: true });
