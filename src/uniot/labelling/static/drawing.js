// Of the page that is shown while the report is drawn: asks again, at the same place of it.

setTimeout(() => location.reload(), 1000);
