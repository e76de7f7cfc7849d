"use strict";
page.emit("draw");
page.emit("ready");
page.emit("map");
