console.log('skipped the page in a browser');
console.log('0 passed, 0 failed, 1 skipped');
