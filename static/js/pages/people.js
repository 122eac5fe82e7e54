// The page People: "/" focuses the search, the arrow keys move between it and the names.
import { watchSearchKeys } from "../shell/search-keys.js";

watchSearchKeys(document.getElementById("people-query"), ".observe-title > a");
