/* What the page does beside being read: choose, sort, show, save, theme. All of it is delegated, so
   that main may be replaced; enhance(root) prepares what is new. */
(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");

  function all(selector, where) { return Array.prototype.slice.call((where || document).querySelectorAll(selector)); }
  function closest(event, selector) { return event.target.closest ? event.target.closest(selector) : null; }
  function say(text) { var place = document.getElementById("said"); if (place) { place.textContent = text; } }

  /* A table that is wider than the page is scrolled by keys, too. */
  function scrollable(where) {
    all(".scroll", where).forEach(function (box) {
      if (box.scrollWidth <= box.clientWidth || !box.clientWidth) { return; }
      box.setAttribute("tabindex", "0");
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", box.querySelector("caption").textContent);
    });
  }
  function made(name, attributes, text) {
    var element = document.createElement(name);
    Object.keys(attributes).forEach(function (key) { element.setAttribute(key, attributes[key]); });
    element.textContent = text || "";
    return element;
  }
  /* Buttons that save a figure or a table. */
  function tools(holder, kinds, titled) {
    if (holder.querySelector(".tools")) { return; }
    var title = holder.querySelector(titled), bar = made("p", { "class": "tools" });
    kinds.forEach(function (kind) {
      var label = "Save " + (title ? title.textContent : "this") + " as " + kind.toUpperCase();
      bar.appendChild(made("button", { type: "button", "data-save": kind, "aria-label": label, title: label }, kind.toUpperCase()));
    });
    holder.appendChild(bar);
  }

  /* Marks of figures: a browser's own tips come late, so ours have their texts. */
  function enhance(where) {
    all("svg.figure", where).forEach(function (figure) {
      all(".mark", figure).forEach(function (mark, i) {
        var title = mark.querySelector("title");
        if (!title) { return; }
        mark.setAttribute("role", "img");
        mark.setAttribute("aria-label", title.textContent);
        mark.setAttribute("tabindex", i ? "-1" : "0");
        title.remove();
      });
    });
    all("thead th", where).forEach(function (head) {
      if (head.querySelector("button") || !head.textContent) { return; }
      var button = made("button", { type: "button", "data-sort": "" }, head.textContent);
      head.textContent = "";
      head.appendChild(button);
    });
    all("figure[data-name]", where).forEach(function (figure) { tools(figure, ["svg", "png"], "figcaption strong"); });
    scrollable(where);
    all(".table[data-name]", where).forEach(function (table) { tools(table, ["csv"], "caption"); });
    all("th[aria-sort]", where).forEach(arrange);
    choose(chosenName(), false);
  }

  /* A participant, by the address: #participant=NAME */
  function chosenName() {
    var found = /^#participant=(.*)$/.exec(location.hash);
    if (!found) { return null; }
    try { return decodeURIComponent(found[1]); } catch (error) { return found[1]; }
  }
  function choose(name, scroll) {
    var shown = null;
    all(".participant").forEach(function (article) {
      var own = name !== null && article.getAttribute("data-participant") === name;
      article.classList.toggle("chosen", own);
      if (own && !shown) { shown = article; }
    });
    all(".has-chosen").forEach(function (each) { each.classList.remove("has-chosen"); });
    all(".participant.chosen").forEach(function (article) {
      article.closest("section").classList.add("has-chosen");
      article.closest(".group").classList.add("has-chosen");
    });
    if (shown) { scrollable(shown); }
    all("select[data-choose]").forEach(function (list) { list.value = name === null ? "" : name; });
    if (name !== null && !shown && all(".participant").length) {
      say(name + " is not listed on this page.");
    }
    if (shown && scroll) {
      var heading = shown.querySelector("h3");
      heading.setAttribute("tabindex", "-1");
      heading.focus({ preventScroll: true });
      shown.closest("section").scrollIntoView();
    }
  }
  window.addEventListener("resize", function () { scrollable(document); });
  window.addEventListener("hashchange", function () {
    if (chosenName() !== null) { choose(chosenName(), true); }
  });
  document.addEventListener("change", function (event) {
    var list = closest(event, "select[data-choose]");
    if (!list) { return; }
    var hash = list.value ? "#participant=" + encodeURIComponent(list.value) : " ";
    history.replaceState(null, "", hash === " " ? location.pathname + location.search : hash);
    choose(list.value || null, false);
  });

  /* Tables: numbers by their values, texts by their letters. */
  function sortKey(row, column) {
    var cell = row.cells[column], number = cell.querySelector("data");
    if (number) { return Number(number.value); }
    var text = cell.textContent.trim();
    return text === "–" || text === "" ? null : text;
  }
  function sort(button) {
    var head = button.closest("th"), table = head.closest("table");
    var up = head.getAttribute("aria-sort") === "descending";
    if (!head.hasAttribute("aria-sort") && !head.classList.contains("number")) { up = true; }
    all("th", table.tHead).forEach(function (each) { each.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    arrange(head);
    say("Sorted by " + button.textContent + ", " + (up ? "ascending" : "descending"));
  }
  function arrange(head) {
    var body = head.closest("table").tBodies[0], column = head.cellIndex;
    var up = head.getAttribute("aria-sort") === "ascending";
    var rows = Array.prototype.slice.call(body.rows).map(function (row, i) {
      return { row: row, key: sortKey(row, column), place: i };
    });
    rows.sort(function (a, b) {
      if (a.key === null || b.key === null) { return (a.key === null) - (b.key === null) || a.place - b.place; }
      var order = typeof a.key === "number" && typeof b.key === "number" ? a.key - b.key
        : String(a.key).localeCompare(String(b.key), undefined, { numeric: true });
      return (up ? order : -order) || a.place - b.place;
    });
    rows.forEach(function (each) { body.appendChild(each.row); });
  }

  /* Files: a table as CSV, a figure as SVG or PNG, settings as text. */
  function save(name, content, type) {
    var link = document.createElement("a");
    var url = content instanceof Blob ? URL.createObjectURL(content) : URL.createObjectURL(new Blob([content], { type: type }));
    link.href = url;
    link.download = name;
    document.body.appendChild(link);
    link.click();
    link.remove();
    setTimeout(function () { URL.revokeObjectURL(url); }, 1000);
  }
  function csvCell(text) {
    var shown = text.replace(/\s+/g, " ").trim();
    /* What begins like a formula is text; numbers with a sign stay numbers. */
    if (/^[=+\-@]/.test(shown) && !/^[+\-]?\d[\d.]*(e[+\-]?\d+)?$/.test(shown)) { shown = "'" + shown; }
    return /[",;\n]/.test(shown) ? '"' + shown.replace(/"/g, '""') + '"' : shown;
  }
  /* In the unit that is shown, with all digits. */
  function numberOf(data) {
    var value = Number(data.value), shown = parseFloat(data.textContent.replace(/,/g, ""));
    var scaled = !/[kMGT]$/.test(data.textContent) && Math.abs(shown - 100 * value) < Math.abs(shown - value);
    return String(scaled ? Number((100 * value).toPrecision(12)) : value);
  }
  /* A column of several numbers (an estimate and its interval) is as many columns. */
  function csv(table) {
    var rows = Array.prototype.slice.call(table.tBodies[0].rows);
    var columns = Array.prototype.slice.call(table.tHead.rows[0].cells).map(function (head, i) {
      var names = [], name = head.textContent;
      rows.forEach(function (row) {
        var numbers = all("data", row.cells[i]);
        if (numbers.length > names.length) {
          names = numbers.map(function (data) { return data.getAttribute("data-path").split("/").pop(); });
        }
      });
      return names.length < 2 ? [name] : names.map(function (last, k) { return k ? name + " " + last : name; });
    });
    var lines = [[].concat.apply([], columns)];
    rows.forEach(function (row) {
      lines.push([].concat.apply([], columns.map(function (names, i) {
        var cell = row.cells[i], numbers = all("data", cell), text = cell.textContent.trim();
        if (numbers.length === 1 && numbers[0].textContent === text) { return [numberOf(numbers[0])]; }
        if (names.length === 1) { return [text]; }
        return names.map(function (_, k) { return numbers[k] ? numberOf(numbers[k]) : k || text === "–" ? "" : text; });
      })));
    });
    return lines.map(function (line) { return line.map(csvCell).join(","); }).join("\r\n") + "\r\n";
  }
  var DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight"];
  function standalone(figure) {
    var copy = figure.cloneNode(true), from = all("*", figure), to = all("*", copy);
    to.forEach(function (each, i) {
      var style = getComputedStyle(from[i]);
      DRAWN.forEach(function (name) {
        var value = style.getPropertyValue(name);
        if (value) { each.setAttribute(name, value); }
      });
      each.removeAttribute("class");
    });
    var box = figure.viewBox.baseVal;
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", box.width);
    copy.setAttribute("height", box.height);
    copy.removeAttribute("class");
    var ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    ground.setAttribute("width", "100%");
    ground.setAttribute("height", "100%");
    ground.setAttribute("fill", getComputedStyle(document.body).backgroundColor);
    copy.insertBefore(ground, copy.querySelector("desc").nextSibling);
    return new XMLSerializer().serializeToString(copy);
  }
  function savePng(name, figure) {
    var box = figure.viewBox.baseVal, picture = new Image();
    picture.onload = function () {
      var canvas = document.createElement("canvas");
      canvas.width = 2 * box.width;
      canvas.height = 2 * box.height;
      canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(function (blob) { save(name + ".png", blob); }, "image/png");
    };
    picture.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(standalone(figure));
  }
  function saveFrom(button) {
    var kind = button.getAttribute("data-save");
    if (kind === "text") {
      var text = button.closest("section").querySelector("pre");
      save(text.getAttribute("data-name"), text.textContent + "\n", "text/plain;charset=utf-8");
      return;
    }
    var holder = button.closest("[data-name]"), name = holder.getAttribute("data-name");
    if (kind === "csv") {
      save(name + ".csv", "\ufeff" + csv(holder.querySelector("table")), "text/csv;charset=utf-8");
    } else if (kind === "svg") {
      save(name + ".svg", standalone(holder.querySelector("svg.figure")), "image/svg+xml;charset=utf-8");
    } else {
      savePng(name, holder.querySelector("svg.figure"));
    }
  }

  /* The theme: as the system has it, light, or dark. */
  function theme(word) {
    if (word === "auto") { root.removeAttribute("data-theme"); } else { root.setAttribute("data-theme", word); }
    all("[data-theme-choice]").forEach(function (button) {
      button.setAttribute("aria-pressed", String(button.getAttribute("data-theme-choice") === word));
    });
    try { localStorage.setItem("glocal-theme", word); } catch (error) { /* a file may have no storage */ }
  }
  try {
    var before = localStorage.getItem("glocal-theme");
    if (before === "light" || before === "dark") { theme(before); }
  } catch (error) { /* as the system has it */ }

  document.addEventListener("click", function (event) {
    var button = closest(event, "button");
    if (!button) { return; }
    if (button.hasAttribute("data-sort")) { sort(button); }
    if (button.hasAttribute("data-save")) { saveFrom(button); }
    if (button.hasAttribute("data-theme-choice")) { theme(button.getAttribute("data-theme-choice")); }
    if (button.hasAttribute("data-print")) { printOne(); }
  });
  function printOne() {
    if (!document.querySelector(".participant.chosen")) { say("Choose a participant first."); return; }
    root.classList.add("print-one");
    window.print();
  }
  window.addEventListener("afterprint", function () { root.classList.remove("print-one"); });

  /* What a mark says, beside it. */
  function showTip(mark) {
    var tip = document.getElementById("tip");
    if (!mark) { if (tip) { tip.remove(); } return; }
    if (!tip) {
      tip = document.createElement("div");
      tip.id = "tip";
      tip.setAttribute("aria-hidden", "true");
      document.body.appendChild(tip);
    }
    tip.textContent = mark.getAttribute("aria-label");
    var box = mark.getBoundingClientRect(), wide = tip.offsetWidth, high = tip.offsetHeight;
    var left = Math.min(Math.max(8, box.left + box.width / 2 - wide / 2), root.clientWidth - wide - 8);
    var top = box.top > high + 12 ? box.top - high - 8 : box.bottom + 8;
    tip.style.left = left + window.scrollX + "px";
    tip.style.top = top + window.scrollY + "px";
  }
  document.addEventListener("mouseover", function (event) { showTip(closest(event, ".mark")); });
  document.addEventListener("focusin", function (event) { showTip(closest(event, ".mark")); });
  document.addEventListener("focusout", function (event) { if (closest(event, ".mark")) { showTip(null); } });
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") { showTip(null); return; }
    var mark = closest(event, ".mark");
    if (!mark) { return; }
    var marks = all(".mark", mark.closest("svg")), at = marks.indexOf(mark);
    var step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    var to = event.key === "Home" ? 0 : event.key === "End" ? marks.length - 1 : step ? at + step : -1;
    if (to < 0 || to >= marks.length) { return; }
    event.preventDefault();
    mark.setAttribute("tabindex", "-1");
    marks[to].setAttribute("tabindex", "0");
    marks[to].focus();
  });

  window.glocal = { enhance: enhance };
  enhance(document);
  if (chosenName() !== null) { choose(chosenName(), true); }
})();
