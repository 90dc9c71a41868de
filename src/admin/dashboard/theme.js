// Before the first paint, so that a dark page does not begin white. Loaded as a plain script for that reason.
(() => {
  const chosen = localStorage.getItem('taskq-theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset['theme'] = chosen;
})();
