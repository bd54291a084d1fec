// Where a field's text is edited first.

/** Puts the caret of a field before its text, so that long ones begin in sight; browsers put it behind. */
export function atBeginning(field: HTMLTextAreaElement): void {
  const move = () => {
    field.setSelectionRange(0, 0);
    field.scrollTop = 0;
  };
  move();
  field.addEventListener('focus', move, { once: true });
}
