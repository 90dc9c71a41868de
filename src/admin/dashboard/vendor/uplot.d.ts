// The server answers this address with the file of the uplot package.
export { default } from 'uplot';
