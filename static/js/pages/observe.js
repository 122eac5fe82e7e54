// The page Observe: "/" focuses the query bar, the arrow keys move between it and the sessions.
import { watchSearchKeys } from "../shell/search-keys.js";

watchSearchKeys(document.getElementById("observe-query"), ".observe-title > a");
