import { register } from 'node:module';

register(new URL('./typescript-loader.mjs', import.meta.url));
