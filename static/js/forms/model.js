// The form of a model: a chosen provider begins the model's name, and a new model is called after it.
const provider = document.getElementById("provider");
const model = document.getElementById("id_litellm_model");
const alias = document.getElementById("id_alias");
const address = document.getElementById("id_api_base");

function suggestName() {
  if (!alias || alias.dataset.typed) return;
  alias.value = model.value.split("/").pop().replaceAll(/[^A-Za-z0-9._:@+-]/g, "").replace(/^[^A-Za-z0-9]+/, "");
}

if (provider) {
  document.getElementById("provider-field").hidden = false;
  provider.addEventListener("change", () => {
    const isOwn = "own" in provider.selectedOptions[0].dataset;
    model.value = provider.value;
    model.dispatchEvent(new Event("change", { bubbles: true }));
    (isOwn ? address : model).focus();
  });
}
if (alias) {
  if (alias.value) alias.dataset.typed = "1";
  alias.addEventListener("input", () => (alias.dataset.typed = alias.value));
  model.addEventListener("input", suggestName);
  model.addEventListener("change", suggestName);
}
